"""Which records a rebuild writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.names import HOUR_MS, Hour
from waybill.facets import EVIDENCE, ProvenanceRecord, keep_annotations
from waybill.facets.arrow import to_tables


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted, and what the events themselves do not say.

    Attributes:
        system_name: the name for records that neither carry one nor were stamped with one.
        annotations_allowed: the annotation keys that records may have.
        since_ms: `completed` at or after this, in epoch milliseconds.
        until_ms: `completed` before this, in epoch milliseconds.
        systems: only records of these systems; empty: of all.
        hours: only records of these hours; empty: of all.
    """

    system_name: str
    annotations_allowed: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    systems: frozenset[str] = frozenset()
    hours: frozenset[Hour] = frozenset()

    def tables(self, records: Iterable[ProvenanceRecord]) -> Iterator[pa.Table]:
        """The derived records that are wanted, as tables of bounded size, with the annotations allowed."""
        allowed = self.annotations_allowed | {EVIDENCE}
        kept = (keep_annotations(one, allowed) for one in records)
        return map(self.rows, to_tables(kept))

    def rows(self, table: pa.Table) -> pa.Table:
        """The rows that are wanted."""
        completed = table["completed"].cast(pa.int64())
        if self.since_ms is not None:
            table = table.filter(pc.greater_equal(completed, self.since_ms))
            completed = table["completed"].cast(pa.int64())
        if self.until_ms is not None:
            table = table.filter(pc.less(completed, self.until_ms))
            completed = table["completed"].cast(pa.int64())
        if self.hours:
            wanted = pa.array(sorted(hour.start_ms // HOUR_MS for hour in self.hours))
            table = table.filter(pc.is_in(pc.divide(completed, HOUR_MS), wanted))
        if self.systems:
            table = table.filter(pc.is_in(table["system_name"], pa.array(sorted(self.systems))))
        return table
