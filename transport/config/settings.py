"""The settings: one table with the valid values and the purpose of each, and the sources of their values.

A setting has the same name in every source. The sources, nearest first: the caller (a key of the transport's
OpenLineage config, an option of a command), ``WAYBILL_<NAME>`` in the environment, ``waybill.yaml`` in the
working folder, ``~/.config/waybill/config.yaml``, the default.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec

from waybill.facets import AnnotationRule

from ..admission import DEFAULT_BOUNDS, Bounds, parse_rules
from ..errors import SettingsError, SettingsFileError
from ..fingerprints import CONTENT_BYTES_MAX
from ..permissions import HomeMode
from . import validators as check
from .backends import (
    DETAIL_BACKLOG,
    MARQUEZ,
    OVER_HTTP,
    BackendSetting,
    Detail,
    freed_of_users,
    is_waybill_itself,
    parse_backends,
    with_keys,
    with_user,
    without_keys,
    without_users,
)
from .found_files import read_settings_file, settings_files

log = logging.getLogger("waybill.transport")

_DEFAULT: Final = "default"
HOME: Final = "home"
"""The origin of a value that comes from the home's agreed settings."""

OPTIONS: Final = "the command's options"
"""The origin of a value given as an option, as messages and `waybill settings` name it."""

_OTHER_VARIABLES: Final = {"marquez_url": "MARQUEZ_URL", "marquez_api_key": "OPENLINEAGE_API_KEY"}
"""The names that users of OpenLineage know."""

API_KEY_VARIABLES: Final = ("WAYBILL_MARQUEZ_API_KEY", _OTHER_VARIABLES["marquez_api_key"])
"""The variables that hold the backend's key."""


_warned: Final[set[str]] = set()
"""The files about which this process, or the one it was forked from, has warned."""


class Setting(msgspec.Struct, frozen=True):
    """One row of the table. The options of the commands and the page of settings are generated from it, too.

    Attributes:
        metavar: stands for the value in the help of the option; empty for a switch.
        default: the default in words, where the value alone is not clear.
        check: converts the given value, or raises a ValueError that says what to give; None: the
            type decides, which is then a switch, a folder or one of a few words.
        of_home: the home's one runner uses it: the home stores it, and every process follows it.
        secret: it is never shown, and the home does not store it: a runner gets it from its environment.
        holds_secrets: messages never repeat the given value.
    """

    metavar: str
    help: str
    default: str = ""
    check: Callable[[object], object] | None = None
    of_home: bool = False
    secret: bool = False
    holds_secrets: bool = False


_agreed: Final = functools.partial(Setting, of_home=True)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of Waybill, checked. Made by `Settings.load`."""

    home: Annotated[
        Path,
        Setting(
            "DIR",
            "Folder of the journal and the runner's log; on a local disk.",
            "the platform's data folder",
        ),
    ]
    home_mode: Annotated[
        HomeMode,
        _agreed("WHO", "Who can open the home: 'private', only its user; 'group', also the folder's group."),
    ] = "private"
    root: Annotated[Path, _agreed("DIR", "Where the provenance files and the archive go.", "the home")]
    system_name: Annotated[
        str, Setting("NAME", "System name of records that carry none.", "the host's name", check=check.name)
    ]
    provenance_enabled: Annotated[
        bool, _agreed("", "Write the provenance files; while this is off, events wait in the journal.")
    ] = False
    provenance_age_off_days: Annotated[
        float, _agreed("DAYS", "Age from which `waybill age-off` removes a file.", check=check.days)
    ] = 3.0
    provenance_annotations_allowed: Annotated[
        frozenset[str],
        _agreed(
            "KEYS",
            "Annotation keys to write into the records, separated by commas; `*`: all.",
            check=check.keys,
        ),
    ] = frozenset()
    provenance_reasons: Annotated[
        bool,
        _agreed("", "Record why a file failed or was filtered, whichever keys are allowed.", "on"),
    ] = True
    archive_enabled: Annotated[
        bool, _agreed("", "Keep every event as Parquet, so that the journal can delete it.", "on")
    ] = True
    lineage_retain_days: Annotated[
        float | None,
        _agreed("DAYS", "How long the index keeps what was told of a file.", "for ever", check=check.days),
    ] = None
    dataset_trimmers: Annotated[
        tuple[str, ...],
        _agreed(
            "RULES",
            "By which rules a path is part of a dataset, separated by commas; empty: by none.",
            "every rule",
            check=check.trimmers,
        ),
    ] = check.TRIMMERS
    marquez_url: Annotated[
        str | None,
        _agreed("URL", "The backend; without one, events wait in the journal.", "$MARQUEZ_URL", check.url),
    ] = None
    marquez_api_key: Annotated[
        str | None,
        _agreed(
            "KEY",
            "Bearer token for the backend; better set in the environment.",
            "$OPENLINEAGE_API_KEY",
            check=check.text,
            secret=True,
            holds_secrets=True,
        ),
    ] = None
    marquez_detail: Annotated[
        Detail,
        _agreed(
            "WHAT", "'every' event; files as a 'summary' per minute; 'auto': summaries while it is behind."
        ),
    ] = "auto"
    detail_backlog: Annotated[
        int,
        _agreed("COUNT", "Number of waiting events from which 'auto' makes summaries.", check=check.count),
    ] = DETAIL_BACKLOG
    public_url: Annotated[
        str | None,
        _agreed(
            "URL", "Address of the collector for users, for links in Marquez.", "where it listens", check.url
        ),
    ] = None
    marquez_page_url: Annotated[
        str | None,
        _agreed("URL", "Address of Marquez's web page, for links to it.", "", check.url),
    ] = None
    backends: Annotated[
        tuple[BackendSetting, ...],
        _agreed(
            "JSON",
            "More backends, a list as docs/marquez.md describes it; better set in waybill.yaml.",
            check=parse_backends,
            holds_secrets=True,
        ),
    ] = ()
    redact: Annotated[
        tuple[str, ...],
        _agreed(
            "RULES",
            "Parts of facets to drop or mask before storage, see docs/collector.md; separated by commas.",
            check=parse_rules,
        ),
    ] = ()
    admit_name_chars: Annotated[
        int, Setting("COUNT", "Longest accepted name or id, in characters.", check=check.count)
    ] = DEFAULT_BOUNDS.name_chars
    admit_items: Annotated[
        int,
        Setting("COUNT", "Most inputs, outputs, transforms, … that one event may have.", check=check.count),
    ] = DEFAULT_BOUNDS.items
    admit_made_chars: Annotated[
        int,
        Setting("COUNT", "Most characters that the records of one event may have.", check=check.count),
    ] = DEFAULT_BOUNDS.made_chars
    fingerprint_max_bytes: Annotated[
        int,
        Setting(
            "SIZE",
            "Largest content of a compressed file that a fingerprint is taken of, such as 500MiB.",
            "64 GiB",
            check=check.size_bytes,
        ),
    ] = CONTENT_BYTES_MAX
    journal_retain_days: Annotated[
        float,
        _agreed(
            "DAYS",
            "How long the journal keeps entries that every projection has, if there is space.",
            check=check.days,
        ),
    ] = 7.0
    close_stale_after: Annotated[
        float | None,
        _agreed(
            "DAYS", "Age from which the runner ends a silent run; that end is inferred.", "off", check.days
        ),
    ] = None
    journal_max_bytes: Annotated[
        int, _agreed("SIZE", "Largest size of the journal, such as 500MiB.", "10 GiB", check=check.size_bytes)
    ] = 10 * 2**30
    runner: Annotated[
        Literal["child", "none"],
        Setting("WHO", "'child': started when needed; 'none': something else on this host does its work."),
    ] = "child"
    durability: Annotated[
        Literal["power", "process"],
        Setting("HOW", "'power': fsynced before it is acknowledged; 'process': a power failure may lose it."),
    ] = "power"
    fallback_home: Annotated[
        Path | None,
        Setting(
            "DIR",
            "Where events are kept while the home cannot be used; private to this user.",
            "$XDG_STATE_HOME/waybill/fallback",
            check=check.folder,
        ),
    ] = None
    strict: Annotated[
        bool,
        Setting(
            "", "Fail if a live runner uses other settings, the home cannot be used, or an event is refused."
        ),
    ] = False
    listen: Annotated[str, Setting("HOST:PORT", "The address of `waybill serve`.", check=check.address)] = (
        "127.0.0.1:8090"
    )
    event_logs: Annotated[
        tuple[str, ...],
        Setting(
            "PLACES",
            "Where Spark writes event logs that `waybill serve` follows; separated by commas.",
            check=check.places,
        ),
    ] = ()
    event_logs_every_s: Annotated[
        float, Setting("SECONDS", "How often `waybill serve` looks at the event logs.", check=check.seconds)
    ] = 30.0
    slis: Annotated[
        Path | None,
        Setting(
            "FILE",
            "The file of service levels, see docs/service-levels.md.",
            "slis.yaml in the home",
            check=check.file,
        ),
    ] = None
    log_format: Annotated[
        Literal["text", "json"], Setting("FORMAT", "How `waybill serve` logs on stderr: 'text' or 'json'.")
    ] = "text"
    origins: Mapping[str, str] = {}
    """The source of each setting's value."""

    @classmethod
    def load(
        cls,
        overrides: Mapping[str, object] | None = None,
        *,
        origin: str = "constructor",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        goes_on: bool = False,
    ) -> Settings:
        """Gather the settings, nearest source first, and check each.

        Args:
            overrides: values given by the caller; None counts as not given.
            origin: the caller's name in messages.
            env: None: the environment of the process.
            cwd: the folder of ``waybill.yaml``; None: the working folder.
            goes_on: whether a file that cannot be used is left out with a warning, unless the settings are
                strict: a pipeline goes on with the home's agreed settings.

        Raises:
            SettingsFileError: a file cannot be used.
            SettingsError: an unknown name or an invalid value.
        """
        env = os.environ if env is None else env
        found: dict[str, tuple[object, str]] = {}
        farther: list[tuple[str, object, str]] = []
        unusable: list[SettingsFileError] = []
        for source, values in _sources(overrides or {}, origin, env, cwd or Path.cwd(), unusable):
            for name, value in values.items():
                if name not in SETTINGS:
                    raise SettingsError(name, value, source, _unknown(name))
                if value is not None and name not in found:
                    found[name] = (value, source)
                elif value is not None:
                    farther.append((name, value, source))
        checked = {name: _check(name, value, source) for name, (value, source) in found.items()}
        if "home" not in checked:
            checked["home"] = _default_home()
        checked.setdefault("root", checked["home"])
        checked.setdefault("fallback_home", _default_fallback())
        checked.setdefault("system_name", socket.gethostname())
        if unusable and (not goes_on or checked.get("strict", False)):
            raise unusable[0]
        for error in unusable:
            if error.origin not in _warned:
                _warned.add(error.origin)
                log.warning("%s; the program goes on without it", error)
        _complete(checked, farther)
        _keep_key_from_others(found, farther, checked)
        origins = {name: found[name][1] if name in found else _DEFAULT for name in SETTINGS}
        settings = cls(**checked, origins=origins)
        settings._refuse_own_endpoint()
        return settings

    def with_values(self, values: Mapping[str, object], origin: str) -> Settings:
        """The same settings with other values from one origin; None resets a setting to no value.

        An invalid value raises a `SettingsError`.
        """
        checked = {
            name: None if value is None else _check(name, value, origin) for name, value in values.items()
        }
        sources = {name: _DEFAULT if value is None else origin for name, value in values.items()}
        return msgspec.structs.replace(self, **checked, origins={**self.origins, **sources})

    def reset(self, names: Collection[str]) -> Settings:
        """The same settings, with the defaults of these, as if nobody had given them values."""
        fields = {field.name: field.default for field in msgspec.structs.fields(type(self))}
        defaults = {name: self.home if name == "root" else fields[name] for name in names}
        origins = {**self.origins, **dict.fromkeys(names, _DEFAULT)}
        return msgspec.structs.replace(self, **defaults, origins=origins)

    def _refuse_own_endpoint(self) -> None:
        """Events that are delivered to Waybill's own endpoint would be delivered again, forever."""
        if self.marquez_url is not None and any(one.name == MARQUEZ for one in self.backends):
            what = "is the name of the backend at marquez_url; give this one another name"
            raise SettingsError("backends", MARQUEZ, self.origins["backends"], what)
        places = [("marquez_url", self.marquez_url)] if self.marquez_url else []
        places += [("backends", one.endpoint) for one in self.backends if one.backend in OVER_HTTP]
        for name, url in places:
            if is_waybill_itself(url, self.listen, self.public_url):
                own = f"listen = {self.listen}, public_url = {self.public_url or '(none)'}"
                what = f"is Waybill's own endpoint ({own}); give the URL of the backend"
                raise SettingsError(name, without_users(url), self.origins[name], what)

    @property
    def bounds(self) -> Bounds:
        """The most that one event or record may have."""
        return Bounds(
            name_chars=self.admit_name_chars, items=self.admit_items, made_chars=self.admit_made_chars
        )

    @property
    def annotation_rule(self) -> AnnotationRule:
        """Which annotations of a record are written."""
        return AnnotationRule(self.provenance_annotations_allowed, self.provenance_reasons)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that pass the secrets to a runner, because the home does not store them."""
        found = {}
        if self.marquez_api_key:
            found[API_KEY_VARIABLES[0]] = self.marquez_api_key
        if self.marquez_url and self.marquez_url != freed_of_users(self.marquez_url):
            found["WAYBILL_MARQUEZ_URL"] = self.marquez_url
        if freed_of_users(self.plain("backends")) != msgspec.to_builtins(list(self.backends)):
            found["WAYBILL_BACKENDS"] = msgspec.json.encode(self.backends).decode()
        return found

    def explicit(self, name: str) -> bool:
        """Whether somebody gave this setting a value, so that it is neither the default nor the home's."""
        return self.origins.get(name, _DEFAULT) not in {_DEFAULT, HOME}

    def optional(self, name: str) -> bool:
        """Whether a value is an option of a command."""
        return self.origins.get(name) == OPTIONS

    def chosen(self, name: str) -> bool:
        """Whether this setting has a value other than the default, including one that the home agreed on."""
        return self.origins.get(name, _DEFAULT) != _DEFAULT

    def found_by_place(self, name: str) -> bool:
        """Whether a value is from a file that nobody named: that of the working folder, or the user's."""
        return Path(self.origins.get(name, _DEFAULT)).is_absolute()

    def plain(self, name: str) -> str | bool | float | list[str] | list[dict[str, str]] | None:
        """One value in its JSON form; backends without their keys."""
        value: Any = getattr(self, name)
        if name == "backends":
            return without_keys(self.backends)
        if isinstance(value, (frozenset, tuple)):
            return sorted(value) if isinstance(value, frozenset) else list(value)
        return str(value) if isinstance(value, Path) else value

    def shown(self, name: str) -> str:
        """One value for people to read: secrets are masked, and a missing value is ``(none)``."""
        value: Any = self.plain(name)
        if value in (None, [], ""):
            return "(none)"
        if SETTINGS[name].secret:
            return "********"
        if name == "backends":
            value = [f"{one.name}={one.endpoint or '(output)'}" for one in self.backends]
        return str(without_users(",".join(value) if isinstance(value, list) else str(value)))


_HINTS: Final = get_type_hints(Settings, include_extras=True)

SETTINGS: Final[dict[str, Setting]] = {
    name: kind.__metadata__[0] for name, kind in _HINTS.items() if hasattr(kind, "__metadata__")
}
"""Every setting by its name, in the order of the documentation."""


def _unknown(name: str) -> str:
    """The problem with a name that no setting has."""
    import difflib  # needed for this alone

    close = difflib.get_close_matches(name, SETTINGS, 1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"is not a setting; {meant}`waybill settings` lists them all"


def _check(name: str, value: object, origin: str) -> Any:  # noqa: ANN401 - the type of the setting
    setting, kind = SETTINGS[name], _HINTS[name].__origin__
    try:
        if setting.check is not None:
            return setting.check(value)
        if kind is bool:
            return check.flag(value)
        return check.folder(value) if kind is Path else check.one_of(get_args(kind), value)
    except (ValueError, TypeError) as error:
        shown = "********" if setting.holds_secrets else without_users(value)
        raise SettingsError(name, shown, origin, str(error)) from None


def _complete(checked: dict[str, Any], farther: list[tuple[str, object, str]]) -> None:
    """Add the secrets from farther sources, such as a file that only one user can read."""
    for name, value, source in farther:
        if name == "backends":
            checked[name] = with_keys(checked[name], _check(name, value, source))
        elif name == "marquez_url":
            checked[name] = with_user(checked[name], str(value))


def _keep_key_from_others(
    found: Mapping[str, tuple[object, str]], farther: list[tuple[str, object, str]], checked: dict[str, Any]
) -> None:
    """Leave out a key that was given together with the address of another backend."""
    if "marquez_api_key" not in found or "marquez_url" not in found:
        return
    place, (_, source) = _place_of(found["marquez_api_key"][1]), found["marquez_url"]
    given = [url for name, url, other in farther if name == "marquez_url" and _place_of(other) == place]
    is_same = _place_of(source) == place or freed_of_users(given[:1]) == [
        freed_of_users(checked["marquez_url"])
    ]
    if is_same or not given:
        return
    del checked["marquez_api_key"]
    log.warning(
        "the key from %s is not sent to the backend that %s names, since it was given with another one's "
        "address; give key and address in one place",
        found["marquez_api_key"][1],
        source,
    )


def _place_of(source: str) -> str:
    """Where a source is: all variables are in one place."""
    return "environment" if source.startswith("environment ") else source


def _sources(
    overrides: Mapping[str, object],
    origin: str,
    env: Mapping[str, str],
    cwd: Path,
    unusable: list[SettingsFileError],
) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The values of each source, nearest first; files that cannot be used are added to `unusable`."""
    yield origin, overrides
    for name in SETTINGS:
        for variable in (f"WAYBILL_{name.upper()}", _OTHER_VARIABLES.get(name, "")):
            if env.get(variable):
                yield f"environment {variable}", {name: env[variable]}
    modes = [overrides.get("home_mode"), env.get("WAYBILL_HOME_MODE")]
    of_files: dict[Path, Mapping[str, object]] = {}
    # The user's own file comes first: it may say that the group may write to the other one.
    for file in reversed(settings_files(env, cwd)):
        try:
            of_files[file] = read_settings_file(file, by_group="group" in modes)
        except SettingsFileError as error:
            unusable.insert(0, error)
        else:
            modes.append(of_files[file].get("home_mode"))
    yield from ((str(file), values) for file, values in reversed(of_files.items()))


def _default_fallback() -> Path | None:
    """A folder in this user's own state directory; None for a user without one."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return state / "waybill" / "fallback"


def _default_home() -> Path:
    import platformdirs

    try:
        return Path(platformdirs.user_data_dir("waybill", appauthor=False))
    except RuntimeError:
        what = "this user has no data folder; give the path of a folder"
        raise SettingsError("home", None, _DEFAULT, what) from None
