"""The hours that the records of some entries are in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from waybill.exporter import parquet
from waybill.exporter.archive import archived_files, read_entries
from waybill.exporter.names import Hour, hour_of
from waybill.exporter.rebuilding import GatheredRuns
from waybill.exporter.stored_records import decode_entries
from waybill.facets import UNREADABLE, observe, records_of

if TYPE_CHECKING:
    from waybill.exporter.rebuilding import Wanted
    from waybill.transport.journal import Entry


def hours_of_archived(root: Path, paths: Iterable[str], wanted: Wanted) -> set[Hour]:
    """The hours of the records that files of the archive have a part in, given by their paths.

    A file that cannot be read is left out: the rebuild names it.
    """
    hours: set[Hour] = set()
    touched = GatheredRuns()
    for batch in _batches([root / path for path in paths]):
        hours |= _fold(batch, wanted, touched)
    # What a run becomes may be in the events of other files.
    runs = GatheredRuns()
    run_ids = frozenset(touched.states())
    others = [path for _, path in archived_files(root)] if run_ids else []
    for batch in _batches(others, run_ids):
        hours |= _fold(batch, wanted, runs)
    records = [one for state in runs.states().values() if state is not None for one in records_of(state)]
    return hours | {hour_of(one.completed) for one in records}


def _batches(paths: Iterable[Path], run_ids: frozenset[str] | None = None) -> Iterator[list[Entry]]:
    for path in paths:
        try:
            yield from read_entries(path, run_ids=run_ids)
        except parquet.DAMAGED:
            continue


def _fold(batch: list[Entry], wanted: Wanted, runs: GatheredRuns) -> set[Hour]:
    """The hours of the records that entries hold by themselves; the others' runs are added to `runs`."""
    found = decode_entries(
        batch,
        system_name=wanted.system_name,
        allowed=wanted.annotations_allowed,
        on_error=lambda _entry, _error: None,
    )
    for event in found.events:
        if event is not None:
            try:
                state = observe(event, system_name=wanted.system_name)
            except UNREADABLE:
                continue
            runs.add(state.run_id, None if state.faceted else state)
    return {hour_of(at_ms) for at_ms in set(found.records["completed"].cast(pa.int64()).to_pylist())}
