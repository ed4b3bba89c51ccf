"""The rebuild: from stored entries to the layout's files, in bounded memory, on all cores.

1. The parts of the source are read, several at once. Records with the facet become raw files immediately;
   runs without it are spilled by a hash of their id.
2. The spilled runs are folded, some buckets at a time, and the derived records become raw files too.
3. The hours touched are compacted by the usual code.

Every step can be repeated, so an interrupted rebuild is resumed by the same call or command. The rows are
those of the live layout once all runs have settled; a root's existing rows are merged with them.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.files import Files

from ..compaction import CompactionReport, Compactor
from ..exporting import export
from ..quarantine import Quarantined
from .coalesced import CoalescedFlow, add_up
from .part import Limits, PartReport, Task, fold_buckets, read_part, runs_name
from .resumable_job import RebuildJob, begin_job, key_of_order, place_below
from .spill import BUCKETS, read_report

if TYPE_CHECKING:
    from ..exporting import Destination
    from ..sources import Source
    from .wanted import Wanted

_ALLOCATIONS_PER_COLLECTION: Final = 100_000
_STAGED: Final = "staged"
_REPORT: Final = "rebuilt.json"

Progress = Callable[[str, int, int], None]
"""Called with the stage, such as "reading", the amount done, and the total amount."""
_Piece = tuple[Callable[..., PartReport], tuple[object, ...]]


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rebuild.

    Attributes:
        resumed: how many parts an earlier attempt had already read.
        records: how many records the entries contain, before duplicates are merged.
        unreadable: how many entries contain no event or records.
        first_unreadable: a sentence about the first such entry.
        damaged: a sentence about each part that could not be read to its end; the others could.
        failed: a sentence about each hour that could not be compacted; the same call retries it.
        coalesced: by flow, files that the source only counts and that gave no record.
        aside: the damaged files of the root that were quarantined.
        files: the published files, relative to the root.
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
    coalesced: tuple[CoalescedFlow, ...] = ()
    aside: tuple[Quarantined, ...] = ()
    files: tuple[str, ...] = ()
    seconds: float = 0.0

    @classmethod
    def of(
        cls,
        read: Sequence[PartReport],
        compacted: CompactionReport,
        *,
        source: str,
        parts: int,
        resumed: int,
        records: int,
        coalesced: Iterable[CoalescedFlow],
        began_s: float,
    ) -> RebuildReport:
        """Sum up the results of the parts and hours; `began_s` is on the monotonic clock."""
        return cls(
            source=source,
            parts=parts,
            resumed=resumed,
            entries=sum(report.entries for report in read),
            records=records,
            unreadable=sum(report.unreadable for report in read),
            first_unreadable=next(
                (report.first_unreadable for report in read if report.first_unreadable), None
            ),
            damaged=tuple(report.damaged for report in read if report.damaged),
            failed=(*compacted.failed.values(), *compacted.unreadable.values()),
            coalesced=tuple(add_up(coalesced)),
            aside=compacted.aside,
            files=compacted.published,
            seconds=round(SYSTEM_CLOCK.monotonic_s() - began_s, 3),
        )

    @property
    def is_whole(self) -> bool:
        """Whether all stored entries were read and written, and no file of the root was damaged."""
        return not (self.unreadable or self.damaged or self.failed or self.coalesced or self.aside)


def rebuild(
    source: Source,
    root: Path | str,
    wanted: Wanted,
    *,
    workers: int = 1,
    files: Files | None = None,
    on_progress: Progress | None = None,
    limits: Limits | None = None,
) -> RebuildReport:
    """Rebuild a layout from stored entries.

    All input is read, because a run's records need all its events. The root is a new folder, or an existing
    root whose rows are kept and merged. `workers` processes read and fold; 1 means only this one. More than
    one start new Python processes, so a script needs the usual ``if __name__ == "__main__":``.

    Raises:
        SourceError: the source does not exist, or cannot be reached now; the same call resumes the rebuild.
        RebuildError: the same rebuild is running in another process.
        OSError: the source cannot be read now, or the root cannot be written; the same call resumes the
            rebuild.
    """
    root = Path(root)
    files = files or Files()
    with begin_job(source, place_below(root, source, wanted), files) as job:
        task = Task(source, root, wanted, job.plan.node, job.store, files, limits or Limits())
        report = _rebuild(job, task, workers, on_progress)
        if not report.failed:
            job.finish()
    return report


def rebuild_remote(
    source: Source,
    destination: Destination,
    staging: Path,
    wanted: Wanted,
    *,
    workers: int = 1,
    files: Files | None = None,
    on_progress: Progress | None = None,
) -> RebuildReport:
    """Rebuild a layout into a destination, where its rows are merged with the existing ones.

    The layout is first built in a local folder and then exported; the job is finished when everything has
    arrived. Arguments and errors are those of `rebuild`; `staging` is a folder with enough space for all
    files, which are deleted once they have arrived. The report's `failed` also has a sentence about each file
    that did not arrive: the same call sends it again.
    """
    files = files or Files()
    place = staging / key_of_order(source, wanted, destination.name)
    with begin_job(source, place, files) as job:
        root = place / _STAGED
        if found := job.store.read(_REPORT):
            report = msgspec.json.decode(found[0], type=RebuildReport)
        else:
            task = Task(source, root, wanted, job.plan.node, job.store, files, Limits())
            report = _rebuild(job, task, workers, on_progress)
            if report.failed:
                return msgspec.structs.replace(report, files=())
            with job.store.writing(_REPORT) as path:
                files.write(path, msgspec.json.encode(report))
        exported = export(
            root,
            destination,
            on_progress=on_progress and (lambda done, total: on_progress("exporting", done, total)),
        )
        if not exported.failed:
            job.finish()
    failed = (*report.failed, *(f"{path}: {why}" for path, why in exported.failed.items()))
    arrived = tuple(path for path in report.files if path not in exported.failed)
    return msgspec.structs.replace(report, failed=failed, files=arrived)


def _rebuild(job: RebuildJob, task: Task, workers: int, on_progress: Progress | None) -> RebuildReport:
    began_s = SYSTEM_CLOCK.monotonic_s()
    progress, plan = on_progress or (lambda _what, _done, _total: None), job.plan
    reports = _reports(job)
    resumed = len(reports)
    progress("reading", resumed, len(plan.parts))
    reads: dict[int, _Piece] = {
        index: (read_part, (task, part, index))
        for index, part in enumerate(plan.parts)
        if index not in reports
    }
    for index, report in _do(reads, workers):
        reports[index] = report
        progress("reading", len(reports), len(plan.parts))
    read = [reports[index] for index in sorted(reports)]
    # Their numbers follow those of the parts.
    folds: dict[int, _Piece] = {
        piece: (fold_buckets, (task, buckets, len(read), piece))
        for piece, buckets in enumerate(_groups(read, task.limits.fold_bytes), len(read))
    }
    folded: list[PartReport] = []
    for _, report in _do(folds, workers):
        folded.append(report)
        progress("folding", len(folded), len(folds))
    hours = {hour for report in (*read, *folded) for hour in report.hours}
    progress("compacting", 0, len(hours))
    compacted = Compactor(task.root, nodes=[plan.node], files=task.files, workers=workers).compact(hours)
    progress("compacting", len(hours), len(hours))
    return RebuildReport.of(
        read,
        compacted,
        source=plan.source,
        parts=len(plan.parts),
        resumed=resumed,
        records=sum(report.records for report in (*read, *folded)),
        coalesced=[flow for report in folded for flow in report.coalesced],
        began_s=began_s,
    )


def _reports(job: RebuildJob) -> dict[int, PartReport]:
    """The results of the parts that are already read, by number."""
    found = {}
    for index in range(len(job.plan.parts)):
        if (file := job.store.open(runs_name(index))) is not None:
            with file:
                found[index] = msgspec.json.decode(read_report(file), type=PartReport)
    return found


def _groups(read: Sequence[PartReport], fold_bytes: int) -> list[list[int]]:
    """The buckets with runs, grouped so that each group fits into memory."""
    groups: list[list[int]] = []
    group_bytes = fold_bytes
    for bucket in range(BUCKETS):
        size_bytes = sum(report.state_bytes[bucket] for report in read)
        if not size_bytes:
            continue
        if group_bytes + size_bytes > fold_bytes:
            groups.append([])
            group_bytes = 0
        groups[-1].append(bucket)
        group_bytes += size_bytes
    return groups


def _do(pieces: Mapping[int, _Piece], workers: int) -> Iterator[tuple[int, PartReport]]:
    """Do all pieces; yield each result when it is done."""
    if workers == 1 or len(pieces) <= 1:
        yield from ((number, do(*arguments)) for number, (do, arguments) in pieces.items())
        return
    pool = ProcessPoolExecutor(
        min(workers, len(pieces)),
        # A fork would copy the locks of pyarrow's threads, even held ones.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare_worker,
    )
    try:
        futures = {pool.submit(do, *arguments): number for number, (do, arguments) in pieces.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare_worker() -> None:
    # The parent process handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Events and records have no cycles, but their number would keep the garbage collector searching for some.
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
