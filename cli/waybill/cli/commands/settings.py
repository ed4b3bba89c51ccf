"""`waybill settings`: each value and where it came from, and what a home has agreed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from waybill.cli import console
from waybill.cli.arguments import JsonObject
from waybill.cli.commands.root import adopt_now, in_place_of_runner, planned, tell
from waybill.cli.home import as_agreed, needed_journal
from waybill.cli.options import AGREED, EVERY, ORIGIN, with_settings
from waybill.transport import Journal, RootError, Settings, locks
from waybill.transport.config import SETTINGS, agreed, change, conflicts, without_users
from waybill.transport.root import Adoption, check_root, renew_used_node
from waybill.transport.runner import Supervisor

app: Final = typer.Typer(invoke_without_command=True)

_ADDRESSES: Final = frozenset({"marquez_url", "backends"})
"""Where a runner's keys are sent, which it has from the program that started it."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that the home has agreed on, before and after."""

    name: str
    before: Any
    after: Any


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What is agreed anew.

    Attributes:
        runner: the process of the live runner that takes it over; None if there is none.
        adoption: what the change to another root means; None if there is nothing to adopt.
    """

    changes: tuple[Change, ...]
    runner: int | None
    adoption: Adoption | None


@app.callback()
@with_settings(*EVERY)
def settings(found: Settings, context: typer.Context, *, as_json: JsonObject = False) -> None:
    """Show each setting, its value, and where the value came from.

    Nearest wins: an option, WAYBILL_<NAME> in the environment, waybill.yaml in the working folder,
    ~/.config/waybill/config.yaml, the default. Secrets are masked.

    Examples:

    \b
      waybill settings
      WAYBILL_DURABILITY=process waybill settings --json
    """
    if context.invoked_subcommand is not None:
        if as_json or ORIGIN in found.origins.values():
            raise typer.BadParameter(f"give the options after `{context.invoked_subcommand}`")
        return
    if as_json:
        console.json(
            {
                name: {
                    "value": found.shown(name) if setting.secret else without_users(found.plain(name)),
                    "origin": found.origins[name],
                }
                for name, setting in SETTINGS.items()
            }
        )
        return
    rows = ((name, found.shown(name), found.origins[name]) for name in SETTINGS)
    console.table(("setting", "value", "from"), rows)


@app.command("apply")
@with_settings("home", *AGREED)
def apply(
    found: Settings,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Make these settings those that the home's programs have agreed on and its runner works by.

    Each that has a value here, from an option, the environment or a file, takes the place of the home's own.
    A live runner takes them over after the step that is under way. With another address of a backend, another
    runner takes its place, and has its keys from this command's environment. With another root, what the
    journal still holds is filed into that as well. Programs that are running go on redacting as they began.

    Examples:

    \b
      waybill settings apply --root /data/lineage --dry-run
      waybill settings apply --home /var/lib/waybill --provenance-enabled
    """
    with needed_journal(found) as journal:
        before = agreed(journal)
        changes = tuple(
            Change(name=one.name, before=before[one.name], after=one.value)
            for one in conflicts(journal, found)
        )
        runner = locks.holder(found.home)
        root = found.root if "root" in {one.name for one in changes} else None
        must_adopt = root is not None and not _is_root_of(journal, root)
        if dry_run:
            adoption = planned(journal, found.root) if must_adopt else None
        else:
            adoption = _apply(journal, found, changes, must_adopt=must_adopt)
    if as_json:
        console.json(Applied(changes=changes, runner=runner, adoption=adoption))
    else:
        _tell(changes, runner, dry_run=dry_run)
        if adoption is not None:
            tell(found.root, adoption, verb="would be" if dry_run else "are")


def _apply(
    journal: Journal, found: Settings, changes: tuple[Change, ...], *, must_adopt: bool
) -> Adoption | None:
    names = {one.name for one in changes}
    if not must_adopt and not names & _ADDRESSES:
        change(journal, found)
        if "root" in names:
            renew_used_node(journal, found.root)
        return None
    was_alive = locks.is_held(journal.home)
    with in_place_of_runner(journal.home) as lease:
        change(journal, found)
        adoption = adopt_now(journal, found.root) if must_adopt else None
        if was_alive:
            Supervisor(journal, as_agreed(found, journal)).start(lease)
    return adoption


def _is_root_of(journal: Journal, root: Path) -> bool:
    try:
        check_root(journal, root)
    except RootError:
        return False
    return True


def _tell(changes: tuple[Change, ...], runner: int | None, *, dry_run: bool) -> None:
    if not changes:
        console.note("this is what the home has agreed on already")
        return
    rows = ((one.name, _shown(one.before), _shown(one.after)) for one in changes)
    console.table(("setting", "agreed before", "agreed now"), rows)
    if not dry_run:
        who = "the next runner works" if runner is None else f"the runner, process {runner}, goes on"
        console.note(f"{who} by this")


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    if value in (None, [], ""):
        return "(none)"
    return value if isinstance(value, str) else msgspec.json.encode(without_users(value)).decode()
