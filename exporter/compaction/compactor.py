"""The compactor: compacts the hours of a root, several at once, and reports the result."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from waybill.transport.files import Files

from ..directory import raw_hours
from ..ledger import hold_against_ledger, recorded
from ..names import Hour
from ..parallel import in_parallel, workers_default
from ..parquet import WINDOW_ROWS
from ..quarantine import Quarantined
from .restartable_hour import HourCompaction, HourReport, Retraction

_HOURS_AT_ONCE_MAX: Final = 64
"""The maximum number of hours that a compaction holds in memory."""

_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Only the C library of GNU has it, and only it keeps so much."""


class CompactionReport(msgspec.Struct, frozen=True):
    """The result of a compaction.

    Attributes:
        published: paths relative to the root, sorted.
        aside: the damaged files that were quarantined; everything else was compacted without them.
        unreadable: by hour with files that cannot be read now, a sentence about the first; everything that
            does not need them was compacted.
        failed: by hour that could not be completed, a sentence with the reason; its raw files are still
            there.
    """

    published: tuple[str, ...] = ()
    aside: tuple[Quarantined, ...] = ()
    unreadable: Mapping[Hour, str] = {}
    failed: Mapping[Hour, str] = {}


class Compactor:
    """Compacts the hours of a root. Several may work on the same root: they take turns.

    Args:
        nodes: the nodes whose unpublished raw files may be removed, because nobody else writes them.
        workers: how many hours are compacted at once.
        window_rows: roughly how many rows of each hour are in memory at once.
        check: raises if the folder is no longer the right root. It is called before each hour and before each
            ledger entry is completed, also from other threads.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        nodes: Collection[str] = (),
        files: Files | None = None,
        workers: int | None = None,
        window_rows: int = WINDOW_ROWS,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._root = Path(root)
        self._nodes = nodes
        self._files = files or Files()
        self._window_rows = window_rows
        self._check = check
        self._workers = min(workers or workers_default(), _HOURS_AT_ONCE_MAX)

    def compact(
        self, hours: Iterable[Hour] | None = None, *, retraction: Retraction | None = None
    ) -> CompactionReport:
        """Compact these hours, or all that have raw files, and the hours of the records to be taken back.

        A damaged file is quarantined; a file that cannot be read or written now is reported. Neither stops
        the rest. An error from `check` does: the next change of the ledger then records what was done.
        """
        wanted = raw_hours(self._root) if hours is None else set(hours)
        wanted |= retraction.hours() if retraction else set()
        if not wanted:
            return CompactionReport()
        self._check()
        _give_back()
        with recorded(self._root, self._files, wanted, keeps=retraction is None) as changed:
            aside = hold_against_ledger(self._root, self._files, sorted(wanted), changed)
            reports = in_parallel(
                lambda hour: self._compact_hour(hour, retraction), sorted(wanted), workers=self._workers
            )
            self._check()
            for report in reports:
                changed.add_quarantined(report.aside)
                changed.update(report.published)
                # It failed after publishing, so more has changed than the report says.
                changed.certain &= report.failed is None
        return summed(reports, aside)

    def _compact_hour(self, hour: Hour, retraction: Retraction | None) -> HourReport:
        self._check()
        return compact_hour(
            self._root,
            hour,
            self._files,
            nodes=self._nodes,
            retraction=retraction,
            window_rows=self._window_rows,
        )


def compact_hour(
    root: Path,
    hour: Hour,
    files: Files,
    *,
    nodes: Collection[str] = (),
    retraction: Retraction | None = None,
    window_rows: int = WINDOW_ROWS,
) -> HourReport:
    """Compact one hour, with the arguments of `Compactor`; the caller must hold the root's lock."""
    compaction = HourCompaction(root, hour, files, nodes, window_rows)
    try:
        compaction.run(retraction)
    except OSError as error:
        compaction.report.failed = (
            f"hour {hour.day}/{hour.hour} cannot be compacted ({error}); its raw files are kept; "
            "once the disk works again, it is retried automatically"
        )
    return compaction.report


def _give_back() -> None:
    """Give back to the system the free memory that the allocators of Arrow and C keep for later.

    After entries with long names these are several hundred megabytes, and the memory of a compaction comes on
    top of them. It takes some milliseconds.
    """
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


def summed(reports: Iterable[HourReport], aside: Iterable[Quarantined] = ()) -> CompactionReport:
    """Combine the reports of all hours, and the files that were quarantined before, into one report."""
    reports = list(reports)
    return CompactionReport(
        published=tuple(sorted(path for one in reports for path in one.published)),
        aside=(*aside, *(quarantined for one in reports for quarantined in one.aside)),
        unreadable={one.hour: one.unreadable for one in reports if one.unreadable is not None},
        failed={one.hour: one.failed for one in reports if one.failed is not None},
    )
