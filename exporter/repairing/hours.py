"""The hours that the records of some entries are in."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from waybill.facets import records_of

from ..names import Hour, hour_of
from ..rebuilding import GatheredRuns, PartReport, StatesByRun, read_folded
from ..sources import EventsSource

if TYPE_CHECKING:
    from ..rebuilding import Wanted


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
