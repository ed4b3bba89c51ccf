"""`waybill root`: the folder that a home files into, and what each of the two knows of the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from waybill.cli import console
from waybill.cli.arguments import JsonObject
from waybill.cli.home import as_agreed, needed_journal
from waybill.cli.options import with_settings
from waybill.cli.records import instant_of
from waybill.transport import Journal, RootError, Settings, WaybillError, locks
from waybill.transport.journal import Node
from waybill.transport.root import (
    CLAIMS,
    Adoption,
    Claim,
    KnownRoot,
    Marker,
    adopt_root,
    check_root,
    known_root,
    plan_adoption,
    read_claims,
    read_marker,
)

app: Final = typer.Typer(
    no_args_is_help=True, help="See whether the root is the right one, or adopt another."
)

_RUNNER_ENDS_WITHIN_S: Final = 60.0


class RootStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A root and a home that files into it.

    Attributes:
        problem: why nothing is filed into this folder; None when it is the right one.
        marker: the folder's own; None where it has none.
        known: the root that the home remembers; None before it has filed anything.
        nodes: every node that the home ever had, the current one last.
        claims: by node, all homes' included, and projection, the numbers that were ever begun to publish.
    """

    home: str
    root: str
    problem: str | None
    marker: Marker | None
    known: KnownRoot | None
    nodes: tuple[Node, ...]
    claims: dict[str, dict[str, Claim]]


@app.command("show")
@with_settings("home", "root")
def show(settings: Settings, *, as_json: JsonObject = False) -> None:
    """Show what the root says of itself, what the home remembers of it, and whether that agrees.

    Exit code 1 when it does not: nothing is filed then, and the journal lets go of nothing.

    Examples:

    \b
      waybill root show
      waybill root show --json | jq .problem
    """
    with needed_journal(settings) as journal:
        found = _status(journal, as_agreed(settings, journal).root)
    if as_json:
        console.json(found)
    else:
        _show(found)
    if found.problem:
        if not as_json:
            console.error(found.problem)
        raise typer.Exit(console.EXIT_FAILED)


@app.command("adopt")
@with_settings("home", "root")
def adopt(
    settings: Settings,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be filed again.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Go on with the folder that is at the root's path now, which is empty, another root or an older copy.

    What the journal still holds and this folder lacks is filed again, under another node. The command names
    the entries that neither of them has. It ends the home's runner; the next one goes on.

    Examples:

    \b
      waybill root adopt --dry-run
      waybill root adopt
    """
    with needed_journal(settings) as journal:
        root = as_agreed(settings, journal).root
        if dry_run:
            adoption = planned(journal, root)
        else:
            with in_place_of_runner(settings.home):
                adoption = adopt_now(journal, root)
    if as_json:
        console.json(adoption)
    else:
        tell(root, adoption, verb="would be" if dry_run else "are")


def planned(journal: Journal, root: Path) -> Adoption:
    """What the adoption of a root would do."""
    from waybill.exporter.archive import Archive
    from waybill.exporter.layout import Layout

    return plan_adoption(journal, root, (Archive.name, Layout.name))


def adopt_now(journal: Journal, root: Path) -> Adoption:
    """Adopt a root; the caller holds the runner's lease."""
    from waybill.exporter.layout import Layout, write_again

    adoption = planned(journal, root)
    if Layout.name in adoption.cursors:
        write_again(journal, adoption.cursors[Layout.name])
    adopt_root(journal, root, adoption)
    return adoption


@contextlib.contextmanager
def in_place_of_runner(home: Path) -> Iterator[locks.Lease]:
    """Hold the runner's lease, for which a live runner ends after the step that is under way."""
    lease = locks.take_over(home, _RUNNER_ENDS_WITHIN_S)
    if lease is None:
        raise WaybillError(f"process {locks.holder(home)} still works on {home}; try again when it has ended")
    try:
        yield lease
    finally:
        lease.release()


def _status(journal: Journal, root: Path) -> RootStatus:
    problem, marker = None, None
    try:
        marker = read_marker(root)
        check_root(journal, root)
    except RootError as error:
        problem = str(error)
    claims: dict[str, dict[str, Claim]] = {}
    for folder in sorted((root / CLAIMS).glob("*/")):
        with contextlib.suppress(RootError):
            claims[folder.name] = read_claims(root, folder.name)
    return RootStatus(
        home=str(journal.home),
        root=str(root),
        problem=problem,
        marker=marker,
        known=known_root(journal),
        nodes=journal.nodes(),
        claims=claims,
    )


def _show(found: RootStatus) -> None:
    marker, known = found.marker, found.known
    made = f"{marker.id}, a root since {instant_of(marker.created_ms)[:19]}" if marker else "no root yet"
    console.line(f"root     {found.root}: {made}")
    console.line(
        f"home     {found.home}: files into {f'{known.id} at {known.path}' if known else 'none yet'}"
    )
    own = {node.name for node in found.nodes}
    rows = (
        (node, "this home's" if node in own else "another home's", projection, str(one.first), str(one.last))
        for node, claims in found.claims.items()
        for projection, one in claims.items()
    )
    console.table(("node", "whose", "projection", "first", "last"), rows)


def tell(root: Path, adoption: Adoption, verb: str) -> None:
    """Say what an adoption does, or would do."""
    for projection, cursor in adoption.cursors.items():
        console.line(f"{projection}\tgoes on after entry {cursor}")
    for projection, (first, last) in adoption.missing.items():
        what = f"entries {first} to {last} are neither in {root} nor in the journal any more"
        console.error(f"{projection}: {what}; restore a copy of the root that has them")
    console.note(f"{adoption.entries} entries {verb} filed again into {root}")
