"""The records that a rebuild writes, and the rule of annotations that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import AnnotationRule, ProvenanceRecord, keep_annotations
from waybill.facets.arrow import to_tables

from ..hour_files import HourFiles
from ..names import HOUR_MS, Hour

if TYPE_CHECKING:
    from waybill.transport.config import Settings


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The wanted records, and values that the events do not contain.

    Attributes:
        system_name: the name for records that have no name and no stamped name.
        rule: which annotations of a record are written.
        since_ms: only records with `completed` at or after this, in epoch milliseconds.
        until_ms: only records with `completed` before this, in epoch milliseconds.
        systems: only records of these systems; empty: of all systems.
        hours: only records of these hours; empty: of all hours.
    """

    system_name: str
    rule: AnnotationRule = AnnotationRule()
    since_ms: int | None = None
    until_ms: int | None = None
    systems: frozenset[str] = frozenset()
    hours: frozenset[Hour] = frozenset()

    def tables(self, records: Iterable[ProvenanceRecord]) -> Iterator[pa.Table]:
        """The wanted derived records, as tables of bounded size, with the annotations that the rule keeps."""
        kept = (keep_annotations(one, self.rule) for one in records)
        return map(self.rows, to_tables(kept))

    def may_hold(self, system_name: str, first_us: int, last_us: int) -> bool:
        """Whether records of a system that completed in a window, epoch microseconds, may be wanted."""
        if self.systems and system_name not in self.systems:
            return False
        is_after = self.until_ms is not None and first_us // 1_000 >= self.until_ms
        return not is_after and (self.since_ms is None or last_us // 1_000 >= self.since_ms)

    def rows(self, table: pa.Table) -> pa.Table:
        """The wanted rows of a table."""
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


def rule_for(settings: Settings, root: Path | str) -> AnnotationRule:
    """The rule of annotations for records that are compared with a root or rebuilt from it.

    The rule in the settings, if somebody chose it or a home agreed on it; otherwise the rule of the root's
    newest files. Files of a root in an object store are not read.
    """
    if settings.chosen("provenance_annotations_allowed") or settings.chosen("provenance_reasons"):
        return settings.annotation_rule
    if isinstance(root, Path):
        files = HourFiles(root)
        for hour in reversed(files.hours):
            if (rules := files.rules(hour)).distinct:
                return rules.as_one()
    return settings.annotation_rule
