"""The settings: their names, defaults and checks, and where each value came from.

The same names everywhere, nearest first: what the caller gives (a key of the transport's OpenLineage config,
an option of a command), ``WAYBILL_<NAME>`` in the environment, ``waybill.yaml`` in the working folder,
``~/.config/waybill/config.yaml``, the default.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec

from waybill.transport.admission import parse_rules
from waybill.transport.config import validators
from waybill.transport.config.backends import (
    DETAIL_BACKLOG,
    DETAILS,
    MARQUEZ,
    OVER_HTTP,
    BackendSetting,
    Detail,
    is_waybill_itself,
    parse_backends,
    with_keys,
    without_keys,
    without_users,
)
from waybill.transport.errors import SettingsError

PROJECTION_SETTINGS: Final = (
    "root",
    "provenance_enabled",
    "provenance_age_off_days",
    "provenance_annotations_allowed",
    "archive_enabled",
    "marquez_url",
    "marquez_api_key",
    "marquez_detail",
    "detail_backlog",
    "public_url",
    "backends",
    "redact",
    "journal_retain_days",
    "journal_max_bytes",
    "journal_when_full",
)
"""Settings that the one runner of a home works by; the home keeps them, and every process must agree."""

SECRETS: Final = frozenset({"marquez_api_key"})
"""Settings whose values are never printed."""

_DEFAULT: Final = "default"
_HOLDS_SECRETS: Final = SECRETS | {"backends"}
"""Settings whose text as given is never repeated."""

_OTHER_NAMES: Final = {"marquez_url": ("MARQUEZ_URL",), "marquez_api_key": ("OPENLINEAGE_API_KEY",)}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting of Waybill, checked. Made by `Settings.load`.

    Attributes:
        home: the journal, the runner's log; a folder on a local disk.
        root: where ``provenance/`` and ``events/`` go.
        system_name: the instance's name in records that carry none.
        provenance_enabled: write the Parquet layout.
        provenance_age_off_days: how long the layout keeps records, in days.
        provenance_annotations_allowed: annotation keys that reach the records; empty: none.
        archive_enabled: write every entry below ``events/``, so that all can be rebuilt when the
            journal has let go of it.
        marquez_url: the backend; None: events wait in the journal.
        marquez_api_key: sent to the backend as a bearer token.
        marquez_detail: ``every`` event is delivered; ``summary``: files as one run for each flow and minute;
            ``auto``: that only while the backend does not keep up.
        detail_backlog: how many events have to wait, beside being old, for ``auto`` to make summaries.
        public_url: where users reach the collector, for links to it; None: where it listens.
        backends: further places that events are delivered to.
        redact: parts of facets that are dropped or masked before an event is kept; see
            `waybill.transport.admission.redaction`.
        journal_retain_days: entries that every projection has are kept this long, in days.
        journal_max_bytes: the journal's largest size, in bytes.
        journal_when_full: ``refuse`` new entries, or ``drop-delivered`` ones before their time.
        runner: ``child``: an emitter starts one; ``none``: something else on this host does the work.
        durability: ``power``: fsynced before emit returns; ``process``: survives the process, fsynced within
            100 ms.
        listen: ``host:port`` of the HTTP endpoint.
        origins: setting to where its value came from.
    """

    home: Path
    root: Path
    system_name: str
    provenance_enabled: bool = False
    provenance_age_off_days: float = 3.0
    provenance_annotations_allowed: frozenset[str] = frozenset()
    archive_enabled: bool = True
    marquez_url: str | None = None
    marquez_api_key: str | None = None
    marquez_detail: Detail = "auto"
    detail_backlog: int = DETAIL_BACKLOG
    public_url: str | None = None
    backends: tuple[BackendSetting, ...] = ()
    redact: tuple[str, ...] = ()
    journal_retain_days: float = 7.0
    journal_max_bytes: int = 10 * 2**30
    journal_when_full: Literal["refuse", "drop-delivered"] = "refuse"
    runner: Literal["child", "none"] = "child"
    durability: Literal["power", "process"] = "power"
    listen: str = "127.0.0.1:8090"
    origins: Mapping[str, str] = {}

    @classmethod
    def load(
        cls,
        overrides: Mapping[str, object] | None = None,
        *,
        origin: str = "constructor",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> Settings:
        """Gather the settings, nearest first, and check each.

        Args:
            overrides: values given by the caller; a None is no value.
            origin: what to call the caller in messages.
            env: the environment; the process's own when None.
            cwd: the folder whose ``waybill.yaml`` counts; the working folder when None.

        Raises:
            SettingsError: an unknown name or a value that cannot be; it names the setting, the value, its
                origin.
        """
        env = os.environ if env is None else env
        found: dict[str, tuple[object, str]] = {}
        farther: list[tuple[object, str]] = []
        for source, values in _sources(overrides or {}, origin, env, cwd or Path.cwd()):
            for name, value in values.items():
                if name not in _CHECKS:
                    raise SettingsError(
                        name, value, source, f"is not a setting; known are {', '.join(_CHECKS)}"
                    )
                if value is not None and name not in found:
                    found[name] = (value, source)
                elif value is not None and name == "backends":
                    farther.append((value, source))
        checked = {name: _check(name, value, source) for name, (value, source) in found.items()}
        if "home" not in checked:
            checked["home"] = _default_home()
        checked.setdefault("root", checked["home"])
        checked.setdefault("system_name", socket.gethostname())
        for value, source in farther:
            # The keys of backends that are named nearer by may stay where only one user can read them.
            others = _check("backends", value, source)
            checked["backends"] = with_keys(
                cast("tuple[BackendSetting, ...]", checked["backends"]),
                cast("tuple[BackendSetting, ...]", others),
            )
        origins = {name: found[name][1] if name in found else _DEFAULT for name in _CHECKS}
        settings = cls(**cast("dict[str, Any]", checked), origins=origins)
        settings._refuse_oneself()
        return settings

    def with_values(self, values: Mapping[str, object], origin: str) -> Settings:
        """The same settings with other values in place of their own.

        Args:
            values: each is checked; a None is no value.
            origin: where they come from.

        Raises:
            SettingsError: a value that cannot be.
        """
        checked = {
            name: None if value is None else _check(name, value, origin) for name, value in values.items()
        }
        sources = {name: _DEFAULT if value is None else origin for name, value in values.items()}
        return msgspec.structs.replace(self, **checked, origins={**self.origins, **sources})

    def _refuse_oneself(self) -> None:
        """Events that are delivered to where they came in by would go round for ever."""
        if self.marquez_url is not None and any(one.name == MARQUEZ for one in self.backends):
            what = "is the name of the backend that marquez_url stands for, give this one another"
            raise SettingsError("backends", MARQUEZ, self.origins["backends"], what)
        places = [("marquez_url", self.marquez_url)] if self.marquez_url else []
        places += [("backends", one.endpoint) for one in self.backends if one.backend in OVER_HTTP]
        for name, url in places:
            if is_waybill_itself(url, self.listen, self.public_url):
                own = f"listen = {self.listen}, public_url = {self.public_url or '(none)'}"
                what = f"is Waybill's own endpoint ({own}); give where the backend is"
                raise SettingsError(name, without_users(url), self.origins[name], what)

    def explicit(self, name: str) -> bool:
        """Whether somebody gave this setting a value."""
        return self.origins.get(name, _DEFAULT) != _DEFAULT

    def plain(self, name: str) -> str | bool | float | list[str] | list[dict[str, str]] | None:
        """One value as JSON has it; backends without their keys."""
        value = getattr(self, name)
        if name == "backends":
            return without_keys(self.backends)
        if isinstance(value, frozenset):
            return sorted(value)
        if name == "redact":
            return list(value)
        return str(value) if isinstance(value, Path) else cast("str | bool | float | None", value)

    def shown(self, name: str) -> str:
        """One value as a person may read it: secrets masked, nothing as ``(none)``."""
        value = self.plain(name)
        if value is None or value in ([], ""):
            return "(none)"
        if name in SECRETS:
            return "********"
        if name == "backends":
            value = [f"{one.name}={one.endpoint or '(output)'}" for one in self.backends]
        text = ",".join(cast("list[str]", value)) if isinstance(value, list) else str(value)
        return cast("str", without_users(text))


def names() -> tuple[str, ...]:
    """Every setting's name, in the order of the documentation."""
    return tuple(_CHECKS)


def _sources(
    overrides: Mapping[str, object], origin: str, env: Mapping[str, str], cwd: Path
) -> list[tuple[str, Mapping[str, object]]]:
    sources: list[tuple[str, Mapping[str, object]]] = [(origin, overrides)]
    for name in _CHECKS:
        variables = (f"WAYBILL_{name.upper()}", *_OTHER_NAMES.get(name, ()))
        sources += [(f"environment {one}", {name: env[one]}) for one in variables if env.get(one)]
    sources.append((str(cwd / "waybill.yaml"), _from_yaml(cwd / "waybill.yaml")))
    with contextlib.suppress(RuntimeError):  # a user id of a container's own choice has no home
        config = Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "waybill" / "config.yaml"
        sources.append((str(config), _from_yaml(config)))
    return sources


def _from_yaml(path: Path) -> Mapping[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot be read ({error}); correct it, or its permissions, or the environment's HOME"
        raise SettingsError("(file)", str(path), str(path), what) from None
    import yaml  # a pipeline without a settings file does not pay for the parser

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError("(file)", str(path), str(path), f"is not YAML, correct it: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(
            "(file)", str(path), str(path), "must hold names with values, as `root: /data/lineage`"
        )
    return {str(name): value for name, value in content.items()}


def _default_home() -> Path:
    import platformdirs

    try:
        return Path(platformdirs.user_data_dir("waybill", appauthor=False))
    except RuntimeError:
        what = "this user has no folder for it; give the path of one"
        raise SettingsError("home", None, _DEFAULT, what) from None


def _check(name: str, value: object, origin: str) -> object:
    try:
        return _CHECKS[name](value)
    except (ValueError, TypeError) as error:
        raise SettingsError(
            name, "********" if name in _HOLDS_SECRETS else without_users(value), origin, str(error)
        ) from None


_CHECKS: Final[dict[str, Callable[[object], object]]] = {
    "home": validators.folder,
    "root": validators.folder,
    "system_name": validators.name,
    "provenance_enabled": validators.flag,
    "provenance_age_off_days": validators.days,
    "provenance_annotations_allowed": validators.keys,
    "archive_enabled": validators.flag,
    "marquez_url": validators.url,
    "marquez_api_key": validators.text,
    "marquez_detail": validators.one_of(*DETAILS),
    "detail_backlog": validators.count,
    "public_url": validators.url,
    "backends": parse_backends,
    "redact": parse_rules,
    "journal_retain_days": validators.days,
    "journal_max_bytes": validators.size_bytes,
    "journal_when_full": validators.one_of("refuse", "drop-delivered"),
    "runner": validators.one_of("child", "none"),
    "durability": validators.one_of("power", "process"),
    "listen": validators.address,
}
