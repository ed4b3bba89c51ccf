"""`waybill settings`: each value and its origin, and a home's agreed settings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from waybill.transport import Journal, RootError, Settings, locks
from waybill.transport.config import AGREED, HOME, SETTINGS, agreed, change, conflicts, without_users
from waybill.transport.root import Adoption, check_root, renew_used_node
from waybill.transport.runner import Supervisor, forget_problems

from .. import completing, console
from ..arguments import Csv, JsonObject, flag, repeated
from ..commanding import Group
from ..home import any_journal, as_agreed, as_worked_by, check_home, existing_journal, make_home
from ..options import EVERY, ORIGIN, with_settings
from ..sample import DEFAULTS
from .root import adopt_now, in_place_of_runner, planned, tell

app: Final = Group(no_args_is_help=False, invoke_without_command=True)

_ADDRESSES: Final = frozenset({"marquez_url", "backends"})
"""The addresses that a runner sends its keys to; it has the keys from the program that started it."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that the home has agreed on, before and after."""

    name: str
    before: Any
    after: Any


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to the home's agreed settings.

    Attributes:
        runner: the process id of the live runner, which adopts them; None if there is none.
        adoption: the consequences of a change of the root; None if there is nothing to adopt.
    """

    changes: tuple[Change, ...]
    runner: int | None
    adoption: Adoption | None


@app.callback()
@with_settings(*EVERY)
def settings(
    found: Settings, context: typer.Context, *, as_json: JsonObject = False, as_csv: Csv = False
) -> None:
    """Show each setting, its value, and where the value came from.

    The nearest value wins: an option, WAYBILL_<NAME> in the environment, waybill.yaml in the working folder,
    ~/.config/waybill/config.yaml, the home's agreed settings, the default. While the home's runner is alive,
    the agreed settings come first, because the runner uses them. Secrets are masked. In the JSON, `own` is
    the value that would apply without the home.

    Examples:
      waybill settings
      WAYBILL_DURABILITY=process waybill settings --json
    """
    if context.invoked_subcommand is not None:
        if as_json or ORIGIN in found.origins.values():
            raise typer.BadParameter(f"give the options after `{context.invoked_subcommand}`")
        return
    check_home(found, needed=False)
    with any_journal(found, to_read=True) as journal:
        counts = as_worked_by(found, journal)
    if as_json:
        console.json({name: _told(name, counts, found) for name in SETTINGS})
        return
    rows = ((name, counts.shown(name), _origin(name, counts, found)) for name in SETTINGS)
    console.table(("setting", "value", "from"), rows, as_csv=as_csv)


def _told(name: str, counts: Settings, found: Settings) -> dict[str, Any]:
    told = []
    for one in (counts, found):
        plain = one.plain(name)
        is_hidden = SETTINGS[name].secret and plain is not None
        value = one.shown(name) if is_hidden else without_users(plain)
        told.append({"value": value, "origin": one.origins[name]})
    return told[0] if counts.origins[name] == found.origins[name] else told[0] | {"own": told[1]}


def _origin(name: str, counts: Settings, found: Settings) -> str:
    """The origin of a value, and the value that it overrides."""
    if counts.origins[name] != HOME or not found.explicit(name):
        return "the home" if counts.origins[name] == HOME else counts.origins[name]
    return f"the home, whose runner is alive; not {found.shown(name)} from {found.origins[name]}"


@app.command("apply")
@with_settings("home", *AGREED)
def apply(
    found: Settings,
    *,
    unset: Annotated[
        list[str] | None,
        repeated(
            "NAME",
            "Restore the default of this setting, for example marquez_url.",
            autocompletion=completing.agreed_settings,
        ),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would change.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Change the home's agreed settings, which its programs and its runner use.

    Each setting that has a value here, from an option, the environment or a file, replaces the home's own.
    --unset restores the default, whatever the environment and the files say. A live runner adopts the changes
    after its current step. If a backend's address changes, a new runner replaces it and takes its keys from
    this command's environment. If the root changes, what the journal still holds is filed into the new root
    as well. Running programs keep the redaction rules that they started with.

    Examples:
      waybill settings apply --root /data/lineage --dry-run
      waybill settings apply --home /var/lib/waybill --provenance-enabled
      waybill settings apply --unset marquez_url
    """
    names = _named(found, unset or ())
    found = found.reset(names)
    changes: tuple[Change, ...] = ()
    runner, adoption = locks.holder(found.home), None
    with existing_journal(found) as journal:
        before = {} if journal is None else agreed(journal)
        if journal is None or not before:
            changes = _beyond_defaults(found)
        else:
            after = {one.name: one.value for one in conflicts(journal, found)}
            after |= {name: found.plain(name) for name in names if before.get(name) != found.plain(name)}
            changes = tuple(
                Change(name=name, before=before.get(name), after=after[name])
                for name in AGREED
                if name in after
            )
        if journal is None:
            if changes and not dry_run:
                make_home(found)
        else:
            root = found.root if "root" in {one.name for one in changes} else None
            must_adopt = root is not None and not _is_root_of(journal, root)
            if not dry_run:
                adoption = _apply(journal, found, changes, names, must_adopt=must_adopt)
            elif must_adopt:
                adoption = planned(journal, found.root)
    if as_json:
        console.json(Applied(changes=changes, runner=runner, adoption=adoption))
    else:
        _tell(changes, runner, dry_run=dry_run)
        if adoption is not None:
            tell(found.root, adoption, dry_run=dry_run)


def _named(found: Settings, unset: Sequence[str]) -> tuple[str, ...]:
    """The names of the settings to unset, however they are spelled."""
    names = tuple(dict.fromkeys(name.lstrip("-").replace("-", "_") for name in unset))
    for name in names:
        if name not in AGREED:
            what = f"{name!r} is not a setting that a home agrees on; give one of {', '.join(AGREED)}"
            raise typer.BadParameter(what, param_hint="--unset")
        if found.origins[name] == ORIGIN:
            raise typer.BadParameter(f"give {name} a value or unset it, not both", param_hint="--unset")
    return names


def _beyond_defaults(found: Settings) -> tuple[Change, ...]:
    """What these settings change in a home that has agreed on nothing."""
    return tuple(
        Change(name=name, before=DEFAULTS[name], after=found.plain(name))
        for name in AGREED
        if found.explicit(name) and found.plain(name) != DEFAULTS[name]
    )


def _apply(
    journal: Journal,
    found: Settings,
    changes: tuple[Change, ...],
    unset: Collection[str],
    *,
    must_adopt: bool,
) -> Adoption | None:
    names = {one.name for one in changes}
    if not must_adopt and not names & _ADDRESSES:
        change(journal, found, unset)
        if "root" in names:
            _begin_with_root(journal, found.root)
        return None
    was_alive = locks.is_held(journal.home)
    with in_place_of_runner(journal.home) as lease:
        change(journal, found, unset)
        adoption = adopt_now(journal, found.root) if must_adopt else None
        if was_alive:
            Supervisor(journal, as_agreed(found, journal)).start(lease)
    return adoption


def _begin_with_root(journal: Journal, root: Path) -> None:
    """Start using a root with nothing to adopt; a live runner notices by itself that the root is right."""
    renew_used_node(journal, root)
    if (lease := locks.take(journal.home)) is not None:
        try:
            forget_problems(journal, planned(journal, root).cursors)
        finally:
            lease.release()


def _is_root_of(journal: Journal, root: Path) -> bool:
    try:
        check_root(journal, root)
    except RootError:
        return False
    return True


def _tell(changes: tuple[Change, ...], runner: int | None, *, dry_run: bool) -> None:
    if not changes:
        console.note("nothing changes: these settings are agreed on already, or are the defaults")
        return
    rows = ((one.name, _shown(one.before), _shown(one.after)) for one in changes)
    console.table(("setting", "agreed before", "agreed now"), rows)
    if not dry_run:
        who = "the next runner uses" if runner is None else f"the runner, process {runner}, now uses"
        console.note(f"{who} these settings")


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value in (None, [], ""):
        return "(none)"
    return value if isinstance(value, str) else msgspec.json.encode(without_users(value)).decode()
