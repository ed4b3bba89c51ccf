"""`waybill status`: show what the journal holds, and how far each projection is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import typer

from waybill.cli import console
from waybill.cli.arguments import JsonObject
from waybill.cli.home import as_agreed, existing_journal
from waybill.cli.options import with_settings
from waybill.transport import Journal, JournalError, Settings, locks
from waybill.transport.fallback import fallback_of, waiting_in_fallback
from waybill.transport.journal import damaged_spools
from waybill.transport.runner import lag_s, statuses, unsettled

PLAIN_SPARK: Final = (
    "final states of plain spark-submit runs are the Spark listener's own, which calls some failed writes "
    "COMPLETE; a driver that uses waybill.spark gives the true ones"
)


class JournalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the journal, and when its oldest entry was accepted (ISO 8601; None without entries)."""

    entries: int = 0
    last_seq: int = 0
    size_bytes: int = 0
    oldest: str | None = None


class ProjectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far a projection is: its last durable entry, how many follow, and how old the first of them is.

    Attributes:
        unsettled: runs that have ended, whose records are written once they have settled.
    """

    cursor: int
    behind: int
    lag_s: float
    unsettled: int
    problem: str | None


class DeliveryStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a backend's events since the home was made.

    Attributes:
        delivered: how many the backend accepted, repeats included.
        failed: failed attempts, each of which was or will be repeated.
        coalesced: events of files that were delivered as part of a summary.
    """

    delivered: int
    failed: int
    dead_letters: int
    coalesced: int
    summaries: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a home.

    Attributes:
        runner_pid: that process; None if there is none, or if it has not written its id yet.
        deliveries: by backend; backends that nothing was sent to yet are left out.
        poison: by projection, how many entries are set aside because it cannot apply them.
        damaged_spools: files of the spool whose damage has cost entries; each stays until it is deleted.
        damaged: files in quarantine, relative to the root; `waybill verify` says how to get their rows back.
        notes: what to know when reading the records.
    """

    home: str
    root: str
    provenance_enabled: bool
    runner_alive: bool
    runner_pid: int | None
    journal: JournalStatus
    projections: dict[str, ProjectionStatus]
    deliveries: dict[str, DeliveryStatus]
    dead_letters: int
    poison: dict[str, int] = {}
    damaged_spools: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    notes: tuple[str, ...] = (PLAIN_SPARK,)


@with_settings("home", "root")
def status(settings: Settings, *, as_json: JsonObject = False) -> None:
    """Show what the journal holds and how far each projection is.

    Exit code 1 when a projection is held up, entries are set aside as poison, or a file of the spool was
    damaged.

    Examples:

    \b
      waybill status
      waybill status --json | jq '.projections.marquez.behind'
    """
    found = status_of(settings)
    if as_json:
        console.json(found)
    else:
        _show(found)
    if (
        found.poison
        or found.damaged_spools
        or any(projection.problem for projection in found.projections.values())
    ):
        raise typer.Exit(console.EXIT_FAILED)


def status_of(settings: Settings) -> Status:
    """The status of a home, which is not changed."""
    from waybill.marquez import dead_letters

    with existing_journal(settings) as journal:
        settings = as_agreed(settings, journal)
        return Status(
            home=str(settings.home),
            root=str(settings.root),
            provenance_enabled=settings.provenance_enabled,
            runner_alive=locks.is_held(settings.home),
            runner_pid=locks.holder(settings.home),
            journal=_journal_status(journal) if journal else JournalStatus(),
            projections=_projection_statuses(journal) if journal else {},
            deliveries=_delivery_statuses(journal) if journal else {},
            dead_letters=sum(len(dead_letters(journal, name)) for name in journal.cursors())
            if journal
            else 0,
            poison=journal.poison.counts() if journal else {},
            damaged_spools=tuple(map(str, damaged_spools(settings.home))),
            damaged=_damaged(settings.root),
            notes=(*_fallback_note(settings), *(_nodes_note(journal) if journal else ()), PLAIN_SPARK),
        )


def _fallback_note(settings: Settings) -> Iterator[str]:
    """What is kept elsewhere, because the home could not be used."""
    where = fallback_of(settings)
    try:
        if entries := waiting_in_fallback(settings):
            yield f"{entries} entries wait in {where}; the next emit or flush adopts them"
    except JournalError as error:
        yield f"nothing is adopted from {where}: {error}"


def _nodes_note(journal: Journal) -> Iterator[str]:
    """Why the journal has another node than it began with, if it has."""
    node = journal.nodes()[-1]
    if node.why:
        began = datetime.fromtimestamp(node.began_ms // 1000, UTC).isoformat(" ", "seconds")
        yield f"since {began} entries are filed as {node.name}, because of the journal before: {node.why}"


def _damaged(root: Path) -> tuple[str, ...]:
    if not (root / "provenance/damaged").is_dir():
        return ()  # nearly always; the import below takes longer than everything else here
    from waybill.exporter.quarantine import list_quarantined

    return tuple(one.kept for one in list_quarantined(root))


def _journal_status(journal: Journal) -> JournalStatus:
    oldest, last_seq = journal.first(), journal.last_seq()
    accepted = datetime.fromtimestamp(oldest.received_ms / 1000, UTC) if oldest else None
    return JournalStatus(
        # Sequence numbers have no gaps: pruning starts with the oldest, and a refused entry gets no number.
        entries=last_seq - oldest.seq + 1 if oldest else 0,
        last_seq=last_seq,
        size_bytes=journal.size_bytes(),
        oldest=accepted.isoformat(" ", "seconds") if accepted else None,
    )


def _projection_statuses(journal: Journal) -> dict[str, ProjectionStatus]:
    written, cursors, last_seq = statuses(journal), journal.cursors(), journal.last_seq()
    return {
        name: ProjectionStatus(
            cursor=cursors.get(name, 0),
            behind=max(last_seq - cursors.get(name, 0), 0),
            lag_s=round(lag_s(journal, cursors.get(name, 0)), 1),
            unsettled=unsettled(journal, name),
            problem=written[name].problem if name in written else None,
        )
        for name in sorted(written.keys() | cursors.keys())
    }


def _delivery_statuses(journal: Journal) -> dict[str, DeliveryStatus]:
    from waybill.marquez import counters_of, dead_letters

    return {
        name: DeliveryStatus(
            delivered=counters.delivered,
            failed=counters.failed,
            dead_letters=len(dead_letters(journal, name)),
            coalesced=counters.coalesced,
            summaries=counters.summaries,
        )
        for name in sorted(journal.cursors())
        if (counters := counters_of(journal, name)) is not None
    }


def _show(found: Status) -> None:
    console.line(f"home      {found.home}")
    console.line(f"root      {found.root}")
    console.line(f"runner    {_runner_words(found)}")
    journal = found.journal
    oldest = f", the oldest of {journal.oldest}" if journal.oldest else ""
    console.line(f"journal   {journal.entries} entries{oldest}, {journal.size_bytes / 2**20:.1f} MiB")
    console.line(
        f"refused   {found.dead_letters} events, for good by the backend (`waybill dead-letters list`)"
    )
    if found.poison:
        each = ", ".join(f"{count} by {name}" for name, count in sorted(found.poison.items()))
        what = f"poison    entries that cannot be applied: {each} (`waybill poison list`)"
        console.line((what, "bold red"))
    for path in found.damaged_spools:
        what = f"spool     {path} was damaged, and entries are lost with it; delete it to be told no more"
        console.line((what, "bold red"))
    if found.damaged:
        what = f"damaged   {len(found.damaged)} files were set aside; `waybill verify` says how to mend that"
        console.line((what, "yellow"))
    if not found.provenance_enabled:
        console.line(("layout    off: events are kept, and become files once it is on", "yellow"))
    for name, one in found.projections.items():
        if one.unsettled:
            console.line(
                f"{name:9} {one.unsettled} runs have ended, and become records once they have settled"
            )
    if found.projections:
        console.line("")
        console.table(
            ("projection", "cursor", "behind", "lag", "problem"),
            (
                (name, str(one.cursor), str(one.behind), f"{one.lag_s:.0f} s", one.problem or "none")
                for name, one in found.projections.items()
            ),
        )
    if found.deliveries:
        console.line("")
        console.table(
            ("backend", "delivered", "failed tries", "dead letters", "coalesced", "summaries"),
            (
                (name, *map(str, (one.delivered, one.failed, one.dead_letters, one.coalesced, one.summaries)))
                for name, one in found.deliveries.items()
            ),
        )
    for text in found.notes:
        console.note((f"note: {text}", "dim"))


def _runner_words(found: Status) -> str:
    if not found.runner_alive:
        return "none; the next emit starts one, and `waybill flush` does the work itself"
    return f"process {found.runner_pid}" if found.runner_pid else "alive"
