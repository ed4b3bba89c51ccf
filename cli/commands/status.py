"""`waybill status`: show what the journal holds and how far each projection has got."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from waybill.collector.event_logs import EventLogStatus
from waybill.exporter.health import (
    HOLDS_UP,
    Problem,
    ProjectionStatus,
    has_plain_spark,
    problems_of,
    projection_statuses,
)
from waybill.exporter.names import DAMAGED, KEYS
from waybill.lineage.index import INDEX, INDEX_NAME
from waybill.transport import Journal, Settings, locks
from waybill.transport.counting import duration_text, size_text

from .. import console
from ..arguments import JsonObject
from ..home import any_journal, as_agreed, check_given_root, check_home, endless_producers
from ..options import with_settings
from ..records import iso
from ..sample import way

PLAIN_SPARK: Final = (
    "some final states come only from Spark's listener, which reports some failed writes as COMPLETE; "
    "to correct them, use waybill.spark in the driver, or run `waybill spark catch-up`"
)

_READ_ENTRIES_MAX: Final = 50_000
"""Which takes a second or so."""


class JournalStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The journal's content, and when its oldest entry was accepted (ISO 8601; None without entries)."""

    entries: int = 0
    last_seq: int = 0
    size_bytes: int = 0
    oldest: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a home.

    Attributes:
        runner_pid: the runner's process id; None if there is no runner, or it has not written its id yet.
        deliveries: by backend, its dead letters and what its `Counters` say; those without any deliveries yet
            are left out.
        poison: by projection, how many entries are set aside because it cannot apply them.
        damaged: files in quarantine, relative to the root; `waybill verify` says how to get their rows back.
        open_runs: the number of files and runs that have begun and not ended; None: so many entries are not
            in the index yet that counting them would take long.
        problems: everything that is wrong; what stops the intake comes first.
        notes: facts to know when reading the records.
    """

    home: str
    root: str
    provenance_enabled: bool
    runner_alive: bool
    runner_pid: int | None
    journal: JournalStatus
    projections: dict[str, ProjectionStatus]
    deliveries: dict[str, dict[str, int]]
    dead_letters: int
    poison: dict[str, int] = {}
    damaged: tuple[str, ...] = ()
    open_runs: int | None = 0
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


@with_settings("home", "root")
def status(settings: Settings, *, as_json: JsonObject = False) -> None:
    """Show what the journal holds and how far each projection has got.

    Exit code 1 if something is wrong: a disk or the journal is full, the root is missing, a projection is
    held up or ten minutes behind, entries are poison or dead letters, files are damaged, or entries wait
    outside the home. `waybill doctor`, /health/ready and the alerts report the same problems.

    Examples:
      waybill status
      waybill status --json | jq '.projections.marquez.behind'
    """
    check_given_root(settings)
    found = status_of(settings)
    if not found.problems:
        check_home(settings)
    if as_json:
        console.json(found)
    else:
        _show(found, turn_on=way(settings, "provenance_enabled", value=True))
    console.fail_if(found.problems)


def status_of(settings: Settings) -> Status:
    """The status of a home; nothing is changed."""
    with any_journal(settings, to_read=True) as journal:
        settings = as_agreed(settings, journal)
        open_runs, lacks = _ask_index(journal) if journal else (0, ())
        deliveries = _deliveries(journal) if journal else {}
        return Status(
            home=str(settings.home),
            root=str(settings.root),
            provenance_enabled=settings.provenance_enabled,
            runner_alive=locks.is_held(settings.home),
            runner_pid=locks.holder(settings.home),
            journal=_journal_status(journal) if journal else JournalStatus(),
            projections=projection_statuses(journal) if journal else {},
            deliveries=deliveries,
            dead_letters=sum(one["dead_letters"] for one in deliveries.values()),
            poison=journal.poison.counts() if journal else {},
            damaged=_damaged(settings.root),
            open_runs=open_runs,
            problems=tuple(status_problems(journal, settings)),
            notes=(*_notes(journal), *lacks) if journal else (),
        )


def status_problems(journal: Journal | None, settings: Settings) -> list[Problem]:
    """The problems of a home, given its agreed settings."""
    followed = EventLogStatus.of(journal) if journal and settings.event_logs else None
    if not locks.is_held(settings.home):
        _compare(settings.root)
    return [*problems_of(journal, settings), *(followed.troubles if followed else ())]


def _compare(root: Path) -> None:
    """Compare the files of a root with its keys, which a runner would do."""
    if (root / KEYS).is_dir():
        from waybill.exporter.keys import Keys

        with contextlib.suppress(OSError):  # If it is the root that cannot be read, its problems say so.
            Keys().compare(root)


def _notes(journal: Journal) -> Iterator[str]:
    """Why the journal has a new node, and what Spark's final states are based on."""
    node = journal.nodes()[-1]
    if node.why:
        since = f"since {iso(node.began_ms)} entries are filed as {node.name}"
        yield f"{since}, because of the previous journal: {node.why}"
    if journal.cursor(INDEX) and not (index := journal.home / INDEX_NAME).exists():
        yield f"{index} is missing, and a runner makes it again; until then, answers take longer"
    if has_plain_spark(journal):
        yield PLAIN_SPARK


def _ask_index(journal: Journal) -> tuple[int | None, Sequence[str]]:
    """How many files and runs are open, and notes about what the graph lacks and whose runs never end.

    The number is None if too many entries would have to be read.
    """
    from waybill.lineage.index import IndexReader

    if journal.waiting(journal.cursor(INDEX)).entries > _READ_ENTRIES_MAX:
        return None, ()
    with IndexReader.open(journal.home, journal) as index:
        return len(index.open_runs()), [*index.graph_lacks(), *endless_producers(index)]


def _damaged(root: Path) -> tuple[str, ...]:
    if not (root / DAMAGED).is_dir():
        return ()  # the usual case; the import below takes longer than everything else here
    from waybill.exporter.quarantine import list_quarantined

    return tuple(one.kept for one in list_quarantined(root))


def _journal_status(journal: Journal) -> JournalStatus:
    oldest, last_seq = journal.first(), journal.last_seq()
    return JournalStatus(
        # Sequence numbers have no gaps: pruning starts with the oldest, and a refused entry gets no number.
        entries=last_seq - oldest.seq + 1 if oldest else 0,
        last_seq=last_seq,
        size_bytes=journal.size_bytes(),
        oldest=iso(oldest.received_ms) if oldest else None,
    )


def _deliveries(journal: Journal) -> dict[str, dict[str, int]]:
    from waybill.marquez import counters_of, dead_letters

    return {
        name: msgspec.structs.asdict(counters) | {"dead_letters": len(dead_letters(journal, name))}
        for name in sorted(journal.cursors())
        if (counters := counters_of(journal, name)) is not None
    }


def _show(found: Status, *, turn_on: str) -> None:
    console.line(f"home      {found.home}")
    console.line(f"root      {found.root}")
    console.line(f"runner    {_runner_words(found)}")
    journal = found.journal
    oldest = f", the oldest of {journal.oldest}" if journal.oldest else ""
    entries = console.counted(journal.entries, "entry", "entries")
    console.line(f"journal   {entries}{oldest}, {size_text(journal.size_bytes)}")
    if found.open_runs != 0:
        console.line(f"open      {_open_words(found.open_runs)}")
    for problem in found.problems:
        label = problem.name if problem.kind in HOLDS_UP else problem.kind.value
        console.line((f"{label:9} {problem.sentence}", "bold red"))
    if not found.provenance_enabled:
        console.line(
            (
                f"layout    off: events are stored, but no files are written; to turn it on: {turn_on}",
                "yellow",
            )
        )
    for name, one in found.projections.items():
        if one.unsettled:
            runs = "1 run has ended, and becomes a record once it has settled"
            if one.unsettled > 1:
                runs = f"{one.unsettled:,} runs have ended, and become records once they have settled"
            console.line(f"{name:9} {runs}")
    if found.projections:
        console.line("")
        console.table(
            ("projection", "cursor", "behind", "lag"),
            (
                (name, str(one.cursor), str(one.behind), duration_text(one.lag_s))
                for name, one in found.projections.items()
            ),
        )
    if found.deliveries:
        console.line("")
        console.table(
            ("backend", "delivered", "failed tries", "coalesced", "summaries"),
            (
                (name, *(str(one[what]) for what in ("delivered", "failed", "coalesced", "summaries")))
                for name, one in found.deliveries.items()
            ),
        )
    for text in found.notes:
        console.note((f"note: {text}", "dim"))


def _open_words(count: int | None) -> str:
    if count is None:
        return "not counted, since many entries wait (`waybill find --open --count` counts)"
    runs = "1 file or run has" if count == 1 else f"{count:,} files and runs have"
    return f"{runs} not ended (`waybill find --open`)"


def _runner_words(found: Status) -> str:
    if not found.runner_alive:
        return "none; the next emit starts one, and `waybill flush` does its work"
    return f"process {found.runner_pid}" if found.runner_pid else "alive"
