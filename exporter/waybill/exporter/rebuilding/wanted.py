"""Which records a rebuild writes, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from waybill.facets import ProvenanceRecord, keep_annotations


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted, and what is not in the events themselves.

    Attributes:
        system_name: the name for records that neither carry one nor were stamped with one.
        annotations_allowed: annotation keys that reach the records.
        since_ms: `completed` at or after this, in epoch milliseconds.
        until_ms: `completed` before this, in epoch milliseconds.
        systems: only records of these systems; empty: of all.
    """

    system_name: str
    annotations_allowed: frozenset[str] = frozenset()
    since_ms: int | None = None
    until_ms: int | None = None
    systems: frozenset[str] = frozenset()

    def select(self, records: Iterable[ProvenanceRecord]) -> list[ProvenanceRecord]:
        """The records that are wanted, with the annotations that are allowed."""
        return [keep_annotations(one, self.annotations_allowed) for one in records if self._is_wanted(one)]

    def _is_wanted(self, record: ProvenanceRecord) -> bool:
        return (
            (self.since_ms is None or record.completed >= self.since_ms)
            and (self.until_ms is None or record.completed < self.until_ms)
            and (not self.systems or record.system_name in self.systems)
        )

    def plain(self) -> list[object]:
        """As values that are the same for the same restrictions."""
        return [
            self.system_name,
            sorted(self.annotations_allowed),
            self.since_ms,
            self.until_ms,
            sorted(self.systems),
        ]
