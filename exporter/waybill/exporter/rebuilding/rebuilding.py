"""The rebuild: from stored entries to the layout's files, in bounded memory, on all cores.

1. The parts of the source are read, several at once. Records with the facet become raw files at once; runs
   without it are spilled by a hash of their id.
2. What was spilled is folded, some buckets at a time, and the derived records become raw files too.
3. The hours touched are compacted, by the code that compacts them otherwise.

Every step can be repeated, so a rebuild that was cut short is taken up by giving the same order again. Its
rows are those of the live layout once all runs have settled; into a root that has rows already they are
merged.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.compaction import Compactor
from waybill.exporter.quarantine import Quarantined
from waybill.exporter.rebuilding.job import begin_job
from waybill.exporter.rebuilding.part import PartReport, Site, fold_buckets, read_part
from waybill.exporter.rebuilding.spill import BUCKETS, read_report
from waybill.transport.files import Files

if TYPE_CHECKING:
    from waybill.exporter.rebuilding.wanted import Wanted
    from waybill.exporter.sources import Source

_FOLD_BYTES: Final = 16 * 2**20
_ALLOCATIONS_PER_COLLECTION: Final = 100_000
_REPORT: Final = msgspec.json.Decoder(PartReport)

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""
_Task = tuple[Callable[..., PartReport], tuple[object, ...]]


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild came to.

    Attributes:
        source: what was read.
        parts: how many parts that is.
        resumed: how many of them an earlier process had read.
        entries: how many entries were read.
        records: how many records they say, before repeats are merged.
        unreadable: how many entries hold no event or records.
        first_unreadable: a sentence about the first of these.
        damaged: a sentence about each part that could not be read to its end; the others were.
        failed: a sentence about each hour that could not be compacted; the same call goes on there.
        aside: the damaged files of the root that were in the way and were set aside.
        files: the files published, relative to the root.
        seconds: how long it took.
    """

    source: str
    parts: int
    resumed: int = 0
    entries: int = 0
    records: int = 0
    unreadable: int = 0
    first_unreadable: str | None = None
    damaged: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    aside: tuple[Quarantined, ...] = ()
    files: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether everything that is stored was read and written, and no damaged file was in the way."""
        return not (self.unreadable or self.damaged or self.failed or self.aside)


def rebuild(
    source: Source,
    root: Path,
    wanted: Wanted,
    *,
    workers: int = 1,
    files: Files | None = None,
    on_progress: Progress | None = None,
) -> RebuildReport:
    """Rebuild a layout from stored entries.

    Args:
        source: what is read, all of it: a run's records need all its events.
        root: where the files go; a new folder, or one whose rows are kept and merged with.
        wanted: which records.
        workers: how many processes read and fold; 1: this one. More start Python anew, so a script that asks
            for them needs the usual ``if __name__ == "__main__":``.
        files: the file system.
        on_progress: see `Progress`.

    Raises:
        SourceError: the source is not there, or cannot be reached now: the same call goes on from there.
        RebuildError: the same rebuild is under way in another process.
        OSError: the source cannot be read now, or the root cannot be written; the same call goes on from
            there.
    """
    began_s = time.monotonic()
    progress = on_progress or (lambda _what, _done, _total: None)
    with begin_job(source, root, wanted, files or Files()) as work:
        plan, site = work.plan, work.site
        known = {
            index: _REPORT.decode(said)
            for index in range(len(plan.parts))
            if (said := read_report(site.runs_path(index))) is not None
        }
        reads: dict[int, _Task] = {
            index: (read_part, (source, part, index, site, wanted))
            for index, part in enumerate(plan.parts)
            if index not in known
        }
        progress("reading", len(known), len(plan.parts))
        reports = dict(known)
        for index, report in _do(reads, workers):
            reports[index] = report
            progress("reading", len(reports), len(plan.parts))
        read = [reports[index] for index in sorted(reports)]
        folds = _folds(read, site, wanted)
        folded: list[PartReport] = []
        for _, report in _do(folds, workers):
            folded.append(report)
            progress("folding", len(folded), len(folds))
        hours = {hour for report in (*read, *folded) for hour in report.hours}
        progress("compacting", 0, len(hours))
        compacted = Compactor(root, node=plan.node, files=site.files, workers=workers).compact(hours)
        progress("compacting", len(hours), len(hours))
        failed = (*compacted.failed.values(), *compacted.unreadable.values())
        if not failed:
            work.finish()
    unreadable = [report.first_unreadable for report in read if report.first_unreadable]
    return RebuildReport(
        source=plan.source,
        parts=len(plan.parts),
        resumed=len(known),
        entries=sum(report.entries for report in read),
        records=sum(report.records for report in (*read, *folded)),
        unreadable=sum(report.unreadable for report in read),
        first_unreadable=next(iter(unreadable), None),
        damaged=tuple(report.damaged for report in read if report.damaged),
        failed=failed,
        aside=compacted.aside,
        files=compacted.published,
        seconds=round(time.monotonic() - began_s, 3),
    )


def _folds(read: Sequence[PartReport], site: Site, wanted: Wanted) -> dict[int, _Task]:
    """Buckets with runs to be folded, together as far as they fit into memory; numbered on from the parts."""
    sizes = [sum(report.state_bytes[bucket] for report in read) for bucket in range(BUCKETS)]
    groups: list[list[int]] = []
    group_bytes = _FOLD_BYTES
    for bucket, size_bytes in enumerate(sizes):
        if not size_bytes:
            continue
        if group_bytes + size_bytes > _FOLD_BYTES:
            groups.append([])
            group_bytes = 0
        groups[-1].append(bucket)
        group_bytes += size_bytes
    return {
        piece: (fold_buckets, (group, len(read), piece, site, wanted))
        for piece, group in enumerate(groups, len(read))
    }


def _do(tasks: Mapping[int, _Task], workers: int) -> Iterator[tuple[int, PartReport]]:
    """Do all tasks, as they get done."""
    if workers == 1 or len(tasks) <= 1:
        yield from ((index, do(*arguments)) for index, (do, arguments) in tasks.items())
        return
    pool = ProcessPoolExecutor(
        min(workers, len(tasks)),
        # A fork would carry along the threads' locks of pyarrow, held or not.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare_worker,
    )
    try:
        futures = {pool.submit(do, *arguments): index for index, (do, arguments) in tasks.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    # An interrupt is the parent's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Events and records hold no cycles, yet by their number they would have some looked for all the time.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
