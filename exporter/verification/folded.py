"""What stored events record of one file, held against rows by the rules that the rows were written by."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from waybill.facets import AnnotationRule, ProvenanceRecord, keep_annotations, merge_all, record_key

if TYPE_CHECKING:
    from waybill.facets.merge_rule import RecordKey


class Folded:
    """The records of one file as the fold gives them, before a rule of annotations is applied."""

    def __init__(self, told: Iterable[ProvenanceRecord]) -> None:
        self._told: defaultdict[RecordKey, list[ProvenanceRecord]] = defaultdict(list)
        for record in told:
            self._told[record_key(record)].append(record)
        self._by_key = functools.cache(self._merged)

    def under(self, rule: AnnotationRule) -> list[ProvenanceRecord]:
        """The records that a rule makes of them, in order."""
        return list(self._by_key(rule).values())

    def _merged(self, rule: AnnotationRule) -> dict[RecordKey, ProvenanceRecord]:
        kept = (keep_annotations(one, rule) for many in self._told.values() for one in many)
        return {record_key(record): record for record in merge_all(kept)}

    def gives(self, row: ProvenanceRecord, rules: Collection[AnnotationRule]) -> bool:
        """Whether a row is what they fold to; what it was merged from may be of any of the rules."""
        at = record_key(row)
        if at not in self._told:
            return False
        folded = [self._by_key(rule)[at] for rule in rules]
        if row in folded:
            return True
        if len(folded) == 1 or all(_bare(one) != _bare(row) for one in folded):
            return False
        kept = [keep_annotations(one, rule) for one in self._told[at] for rule in rules]
        for key in {key for one in (row, *folded) for key in one.annotations or ()}:
            value = _value(row, key)
            if value not in {_value(one, key) for one in (folded if value is None else kept)}:
                return False
        return True


def _bare(record: ProvenanceRecord) -> ProvenanceRecord:
    return msgspec.structs.replace(record, annotations=None)


def _value(record: ProvenanceRecord, key: str) -> str | None:
    return (record.annotations or {}).get(key)
