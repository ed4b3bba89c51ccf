"""`waybill root`: the folder that a home files into, and what each knows about the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

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
from waybill.transport.runner import forget_problems

from .. import console
from ..arguments import JsonObject, flag
from ..commanding import Group
from ..home import as_agreed, check_given_root, check_own_root, existing_journal
from ..options import with_settings
from ..records import as_plain, instant_of

app: Final = Group(help="Check that the root is the right one, or adopt another.")

_RUNNER_ENDS_WITHIN_S: Final = 60.0


class RootStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A root and a home that files into it.

    Attributes:
        problem: why nothing is filed into this folder; None if it is the right one.
        marker: the folder's marker; None if it has none.
        known: the root that the home remembers; None before it has filed anything.
        nodes: every node that the home ever had, the current one last.
        claims: by node, of any home, and projection: the numbers whose publication was ever begun.
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
    """Show the root's identity, the one that the home remembers, and whether they match.

    Exit code 1 if they do not match: nothing is filed then, and the journal deletes nothing.

    Examples:
      waybill root show
      waybill root show --json | jq .problem
    """
    check_given_root(settings, may_become=True)
    with existing_journal(settings, to_read=True) as journal:
        found = _status(as_agreed(settings, journal), journal)
    if as_json:
        console.json(as_plain(found))
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
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be filed again.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Continue with the folder now at the root's path: an empty one, another root or an older copy.

    Entries that the journal still holds and this folder lacks are filed again, under another node. The
    command lists the entries that neither of them has. It ends the home's runner; the next runner continues.

    Examples:
      waybill root adopt --dry-run
      waybill root adopt
    """
    with existing_journal(settings, to_read=dry_run) as journal:
        check_own_root(settings)
        root = as_agreed(settings, journal).root
        if journal is None:
            adoption = Adoption(cursors={}, entries=0, missing={})
        elif dry_run:
            adoption = planned(journal, root)
        else:
            with in_place_of_runner(settings.home):
                adoption = adopt_now(journal, root)
    if as_json:
        console.json(adoption)
    else:
        tell(root, adoption, dry_run=dry_run)


def planned(journal: Journal, root: Path) -> Adoption:
    """The effects that adopting a root would have."""
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
    forget_problems(journal, adoption.cursors)
    return adoption


@contextlib.contextmanager
def in_place_of_runner(home: Path) -> Iterator[locks.Lease]:
    """Hold the runner's lease; a live runner ends after its current step to give it up."""
    lease = locks.take_over(home, _RUNNER_ENDS_WITHIN_S)
    if lease is None:
        raise WaybillError(
            f"process {locks.holder(home)} still works on {home}; try again after it has ended"
        )
    try:
        yield lease
    finally:
        lease.release()


def _status(settings: Settings, journal: Journal | None) -> RootStatus:
    root, problem, marker = settings.root, None, None
    try:
        marker = read_marker(root)
        if journal is not None:
            check_root(journal, root)
    except RootError as error:
        problem = str(error)
    claims: dict[str, dict[str, Claim]] = {}
    for folder in sorted((root / CLAIMS).glob("*/")):
        with contextlib.suppress(RootError):
            claims[folder.name] = read_claims(root, folder.name)
    return RootStatus(
        home=str(settings.home),
        root=str(root),
        problem=problem,
        marker=marker,
        known=known_root(journal) if journal else None,
        nodes=journal.nodes() if journal else (),
        claims=claims,
    )


def _show(found: RootStatus) -> None:
    marker, known = found.marker, found.known
    made = f"{marker.id}, a root since {instant_of(marker.created_ms)[:19]}" if marker else "not a root yet"
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


def tell(root: Path, adoption: Adoption, *, dry_run: bool) -> None:
    """Print what an adoption did, or would do."""
    for projection, cursor in adoption.cursors.items():
        console.line(f"{projection}\tcontinues after entry {cursor}")
    for projection, (first, last) in adoption.missing.items():
        what = f"entries {first} to {last} are in neither {root} nor the journal"
        console.error(f"{projection}: {what}; restore a copy of the root that has them")
    entries = console.counted(adoption.entries, "entry", "entries")
    console.note(f"{'would be ' if dry_run else ''}filed again into {root}: {entries}")
