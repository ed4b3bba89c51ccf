"""The merge rule: when two provenance records are one, and how their fields are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from .record import FinalState, ProvenanceRecord

RecordKey = tuple[str, str, str | None, tuple[str, ...], FinalState, int]
"""The natural key: two records with equal values in these fields are one record."""


def record_key(record: ProvenanceRecord) -> RecordKey:
    """Return the natural key; see `RecordKey`."""
    return (
        record.system_name,
        record.did,
        record.data_sink,
        record.transforms,
        record.final_state,
        record.completed,
    )


def _merge_annotations(a: dict[str, str] | None, b: dict[str, str] | None) -> dict[str, str] | None:
    if a is None or b is None:
        return b if a is None else a
    return {key: max(a.get(key, ""), b.get(key, "")) for key in sorted(a.keys() | b.keys())}


def _greater(a: str | None, b: str | None) -> str | None:
    return a if b is None else max(a or "", b)


_IDENTITIES: Final = ("filename", "data_source", "parent_did")
_MERGE_RULES: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "created": min,
    **dict.fromkeys(_IDENTITIES, _greater),
    "annotations": _merge_annotations,
}
"""How two values become one, by field outside the natural key."""


def merge_records(a: ProvenanceRecord, b: ProvenanceRecord) -> ProvenanceRecord:
    """Merge two records of one key: commutative, associative and idempotent, so no order or repeat matters.

    The earlier `created` counts; of two texts the non-empty one, else the greater; annotations are united,
    and for each key the greater value counts.

    Raises:
        ValueError: their keys differ.
    """
    if record_key(a) != record_key(b):
        raise ValueError(
            f"records of {a.did!r} and {b.did!r} differ in their natural key: merge records of one key only"
        )
    if a == b:
        return a
    merged = {name: rule(getattr(a, name), getattr(b, name)) for name, rule in _MERGE_RULES.items()}
    return msgspec.structs.replace(a, **merged)


def merge_all(records: Iterable[ProvenanceRecord]) -> list[ProvenanceRecord]:
    """Merge the records that share a key; sorted by `completed`, then `did`, then the rest of the key."""
    merged: dict[RecordKey, ProvenanceRecord] = {}
    for record in records:
        key = record_key(record)
        known = merged.get(key)
        merged[key] = record if known is None else merge_records(known, record)
    return sorted(merged.values(), key=_place)


def _place(record: ProvenanceRecord) -> tuple[int, str, str, bool, str, tuple[str, ...], str]:
    return (
        record.completed,
        record.did,
        record.system_name,
        record.data_sink is not None,
        record.data_sink or "",
        record.transforms,
        record.final_state,
    )


def is_collision(a: ProvenanceRecord, b: ProvenanceRecord) -> bool:
    """Return whether two different files share one key: they name different files, sources or parents."""
    identities = ((getattr(a, name), getattr(b, name)) for name in _IDENTITIES)
    return record_key(a) == record_key(b) and any(one and other and one != other for one, other in identities)
