"""The repair: refiles the rows that a check finds lost, if the journal or the archive still has them.

1. Entries that the archive lacks are filed from the journal.
2. The hours whose files were lost, forged or damaged are rebuilt from the archive, and so are those of the
   records that the first step brought back. Rows that are there stay, and are merged.
3. The ledger keeps which findings have their rows back. They stay findings until somebody accepts them.

Each step can be repeated, so a repair that was cut short is simply run again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from waybill.facets import records_of
from waybill.transport.files import Files
from waybill.transport.journal import Journal

from ..archive import archived_files, folder_hour, refile
from ..directory import names
from ..ledger import compare_again, is_archived, read_ledger, recorded
from ..names import AGED, ARCHIVE, EVENTS, RAW, Hour, RawName, hour_in, hour_of
from ..quarantine import list_quarantined, note_restored
from ..rebuilding import GatheredRuns, PartReport, StatesByRun, Wanted, read_folded, rebuild
from ..sources import EventsSource, JournalSource, Source
from ..tombstones import was_removed
from ..verification import Finding, check, claims


def hours_of_archived(root: Path, files: Iterable[str], wanted: Wanted) -> set[Hour]:
    """The hours of the records that files of the archive have a part in, given by their paths.

    A file that cannot be read is left out: the rebuild names it.
    """
    archive = EventsSource(root)
    hours, touched = _folded(archive, files, wanted)
    if touched:
        # What a run becomes may be in the events of other files.
        more, runs = _folded(archive, archive.parts(), wanted, frozenset(touched))
        derived = (one for state in runs.values() if state is not None for one in records_of(state))
        hours |= more | {hour_of(one.completed) for one in derived}
    return hours


def _folded(
    archive: EventsSource, files: Iterable[str], wanted: Wanted, run_ids: frozenset[str] | None = None
) -> tuple[set[Hour], StatesByRun]:
    """The hours of the records that entries hold by themselves, and the other runs."""
    hours: set[Hour] = set()
    runs = GatheredRuns()
    for file in files:
        read = partial(archive.read, file, run_ids=run_ids)
        for records, said in read_folded(read, str, wanted, PartReport()):
            hours |= {hour_of(at_ms) for at_ms in records["completed"].cast(pa.int64()).unique().to_pylist()}
            for run_id, state in said.items():
                runs.add(run_id, state)
    return hours, runs.states()


_NOTHING_STORED: Final = "there is neither an archive nor a journal to rebuild it from"
_LOST: Final = frozenset({"removed", "damaged", "unrecorded", "unreadable", "altered"})
_THERE: Final = frozenset({"unrecorded", "unreadable", "altered"})

Progress = Callable[[str, int, int], None]
"""Called with the stage, such as "checking", how much is done, and how much there is to do; 0: unknown."""


class RepairReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a repair, or of a dry run.

    Attributes:
        archived: files of the archive that were filed again, relative to the root.
        hours: the hours that were rebuilt, as ``YYYYMMDD/HH``.
        files: the layout's files that were published, relative to the root.
        restored: the ids of the findings whose rows were filed again.
        left: a sentence about each loss that could not be repaired, and each finding that is no loss.
    """

    archived: tuple[str, ...] = ()
    hours: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def repair(
    root: Path | str,
    wanted: Wanted,
    *,
    home: Path | None = None,
    workers: int = 1,
    dry_run: bool = False,
    files: Files | None = None,
    on_progress: Progress | None = None,
) -> RepairReport:
    """File again what a check of a root finds lost, from the archive and the journal of a home.

    Only the system name and the annotation rule of `wanted` count. Findings filed again or accepted before
    are skipped. With `dry_run` the report says what would be done.

    Raises:
        SourceError: the archive or the journal cannot be reached now.
        RebuildError: the same repair is under way in another process.
        OSError: the root cannot be read or written.
    """
    root = Path(root)
    files, progress = files or Files(), on_progress or (lambda _what, _done, _total: None)
    wanted = Wanted(system_name=wanted.system_name, rule=wanted.rule)
    if not dry_run:
        with recorded(root, files, ()):
            pass  # An entry that a crash left begun is completed: until then its hours show no findings.
    found = list(_open_findings(root, progress))
    lost = [one for one in found if one.kind in _LOST and not is_archived(one.was)]
    with contextlib.ExitStack() as held:
        journal = None
        if home is not None and Journal.exists(home):
            journal = held.enter_context(contextlib.closing(Journal(home, to_read=True)))
        archived, left = _refile(root, journal, found, files, dry_run=dry_run)
        hours = {hour for one in lost if (hour := hour_in(one.was)) is not None}
        brought_back = set() if dry_run else hours_of_archived(root, archived, wanted)
        # Rows that an age-off or an export removed stay removed.
        aged = tuple(names(root / AGED))
        hours |= {hour for hour in brought_back if not any(was_removed(root, one, hour) for one in aged)}
        older = dict(_older(root, journal, hours))
    left += _others(found)
    left += older.values()
    if dry_run:
        return RepairReport(archived=archived, hours=_shown(hours), left=tuple(left))
    wanted = msgspec.structs.replace(wanted, hours=frozenset(hours))
    source = _source(root, home) if hours else None
    if hours and source is None:
        left += [f"{one.path}: {one.what.partition('; ')[0]}; {_NOTHING_STORED}" for one in lost]
        hours = set()
    published: tuple[str, ...] = ()
    if source is not None:
        report = rebuild(source, root, wanted, workers=workers, files=files, on_progress=progress)
        left += [*report.damaged, *report.failed, *filter(None, [report.first_unreadable])]
        published = report.files
        if report.damaged or report.failed:
            older = dict.fromkeys(hours, "")
    restored = _restored(root, hours - older.keys(), archived, lost, files)
    compare_again(root, files)
    return RepairReport(
        archived=archived,
        hours=_shown(hours),
        files=published,
        restored=restored,
        left=tuple(left),
    )


def _open_findings(root: Path, progress: Progress) -> Iterator[Finding]:
    for done, checked in enumerate(check(root), 1):
        progress("checking", done, 0)
        yield from (one for one in checked.findings if one.accepted is None and not one.restored)


def _refile(
    root: Path, journal: Journal | None, found: Iterable[Finding], files: Files, *, dry_run: bool
) -> tuple[tuple[str, ...], list[str]]:
    """File again what the archive lacks; return the files, and a sentence for each range that is left."""
    ranges: dict[RawName, bool] = {}
    for one in found:
        raw = RawName.parse(one.was.rpartition("/")[2])
        if raw is not None and (one.kind == "gap" or (one.kind in _LOST and is_archived(one.was))):
            ranges[raw] = one.kind in _THERE
    archived: list[str] = []
    left: list[str] = []
    for raw, is_damaged in sorted(ranges.items()):
        held = None if journal is None else _last_under(journal, raw.node)
        if journal is None or held is None:
            left.append(
                f"{_entries(raw)} are not in the archive; run `waybill repair` at that journal's home"
            )
            continue
        # What the archive has not come to yet, its own runner files.
        due = raw._replace(last=min(raw.last, max(held, raw.first - 1), journal.cursor(ARCHIVE)))
        if held < raw.last:
            lost = _entries(raw._replace(first=max(raw.first, held + 1)))
            left.append(f"{lost} are not in the archive, and the journal has lost them")
            if due.first > due.last:
                continue
        if due.first > due.last:
            left.append(f"{_entries(raw)} are not in the archive yet; run `waybill flush`")
            continue
        done = refile(journal, root, due, files, damaged=is_damaged, dry_run=dry_run)
        archived += done.files
        left += [f"{_entries(one)} are neither in the archive nor in the journal" for one in done.lacking]
    return tuple(archived), left


def _last_under(journal: Journal, node: str) -> int | None:
    """The last entry of a journal that it had under one of its nodes; None where the node is another's."""
    nodes = journal.nodes()
    ends = [*(one.after for one in nodes[1:]), journal.last_seq()]
    return next((end for one, end in zip(nodes, ends, strict=True) if one.name == node), None)


def _entries(raw: RawName) -> str:
    return f"entries {raw.first} to {raw.last} of the journal {raw.node}"


def _others(found: Sequence[Finding]) -> Iterator[str]:
    """What was found and is no loss, a sentence each."""
    has_hole = any(one.kind == "gap" or is_archived(one.was) for one in found if one.kind in {*_LOST, "gap"})
    for one in found:
        # A missing file breaks the chain, and the repair restores that file.
        if one.kind not in {*_LOST, "gap"} and not (one.kind == "chain" and has_hole):
            yield f"{one.kind} {one.path}: {one.what}"


def _source(root: Path, home: Path | None) -> Source | None:
    if (root / EVENTS).is_dir():
        return EventsSource(root)
    return JournalSource(home) if home is not None and Journal.exists(home) else None


def _restored(
    root: Path, hours: set[Hour], archived: Sequence[str], lost: Iterable[Finding], files: Files
) -> tuple[str, ...]:
    """Record which findings have their rows back, those that the repair itself made included."""
    state = read_ledger(root)
    doubts = state.doubts.values() if state else ()
    known = state.accepted.keys() | state.restored if state else frozenset()
    restored = tuple(
        one.id
        for one in doubts
        if one.id not in known
        and (one.was in archived or (hour_in(one.was) in hours and not is_archived(one.was)))
    )
    # The ledger has no raw files, so it has no doubts about them.
    restored += tuple(
        one.id
        for one in lost
        if one.kind == "removed" and one.was.startswith(f"{RAW}/") and hour_in(one.was) in hours
    )
    kept = {
        one.kept
        for one in list_quarantined(root)
        if one.path in archived or (one.hour in hours and not is_archived(one.path))
    }
    if restored or kept:
        with recorded(root, files, ()) as changed:
            note_restored(root, kept, files)
            changed.restored = restored
    return restored


def _older(root: Path, journal: Journal | None, hours: Iterable[Hour]) -> Iterator[tuple[Hour, str]]:
    """Those hours that are older than what is still stored of a journal's entries, with a sentence."""
    begins: dict[str, tuple[int, Hour]] = {}
    for name, path in archived_files(root):
        one = (name.first, folder_hour(path))
        begins[name.node] = min(begins.get(name.node, one), one)
    if not begins and journal is not None and (first := journal.first()) is not None:
        begins[journal.node] = (first.seq, hour_of(first.received_ms))
    # A journal's first node began with its first entry, a later one where the one before it ended.
    firsts = {node: one.first for node, one in claims(root).items() if one.earlier}
    for hour in sorted(hours):
        for node, (seq, began) in sorted(begins.items()):
            if seq > firsts.get(node, 1) and hour < began:
                what = (
                    f"hour {hour.day}/{hour.hour} may lack rows: of the journal {node}, entries before {seq}"
                )
                yield hour, f"{what} are no longer stored; restore the hour from an export"


def _shown(hours: Iterable[Hour]) -> tuple[str, ...]:
    return tuple(f"{hour.day}/{hour.hour}" for hour in sorted(hours))
