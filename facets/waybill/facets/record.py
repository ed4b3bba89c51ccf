"""The provenance record: one per path on which a file ended, and how two that mean the same become one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST_MS = 1
"""The earliest instant a record may hold, in epoch milliseconds; zero is what a missing time looks like."""

AFTER_LAST_MS = 253_402_300_800_000
"""The first epoch millisecond of the year 10000, past which readers of Parquet disagree."""

UNREADABLE = (ValueError, msgspec.MsgspecError, RecursionError)
"""What `decode_records`, `decode_event` and `observe` raise for bytes that are not what they take."""

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
_EpochMs = Annotated[int, msgspec.Meta(ge=FIRST_MS, lt=AFTER_LAST_MS)]


class FinalState(StrEnum):
    """How a file's path ended."""

    COMPLETE = "COMPLETE"
    ERROR = "ERROR"
    FILTERED = "FILTERED"
    CANCELLED = "CANCELLED"
    SPLIT = "SPLIT"


class ProvenanceRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One file's passage along one path, with DeltaFi's eleven fields.

    Attributes:
        did: the file's identity.
        parent_did: the file it was split from.
        system_name: the instance that handled it.
        data_source: the flow it came in by.
        filename: its name.
        transforms: the flows that changed it on this path, in order.
        data_sink: the flow it left by; none where it left by none.
        final_state: how the path ended.
        created: when the file began, in epoch milliseconds.
        completed: when the path ended, in epoch milliseconds.
        annotations: what was noted about it, sorted by key; none rather than empty.
    """

    did: str
    parent_did: str | None = None
    system_name: str
    data_source: str
    filename: str
    transforms: tuple[str, ...]
    data_sink: str | None = None
    final_state: FinalState
    created: int
    completed: int
    annotations: dict[str, str] | None = None


RecordKey = tuple[str, str, str | None, tuple[str, ...], FinalState, int]


def record_key(record: ProvenanceRecord) -> RecordKey:
    """Return the natural key: two records that share it are one record."""
    return (
        record.system_name,
        record.did,
        record.data_sink,
        record.transforms,
        record.final_state,
        record.completed,
    )


def merge_records(a: ProvenanceRecord, b: ProvenanceRecord) -> ProvenanceRecord:
    """Merge two records of one key: commutative, associative and idempotent, so no order or repeat matters.

    The earlier `created` counts, of two texts the non-empty, else the greater one; annotations are united,
    the greater value counting.

    Raises:
        ValueError: their keys differ.
    """
    if record_key(a) != record_key(b):
        raise ValueError(
            f"records of {a.did!r} and {b.did!r} differ in their natural key: merge records of one key only"
        )
    if a == b:
        return a
    return msgspec.structs.replace(
        a,
        created=min(a.created, b.created),
        parent_did=a.parent_did if b.parent_did is None else max(a.parent_did or "", b.parent_did),
        filename=max(a.filename, b.filename),
        data_source=max(a.data_source, b.data_source),
        annotations=_merge_annotations(a.annotations, b.annotations),
    )


def _merge_annotations(a: dict[str, str] | None, b: dict[str, str] | None) -> dict[str, str] | None:
    if a is None or b is None:
        return b if a is None else a
    return {key: max(a.get(key, ""), b.get(key, "")) for key in sorted(a.keys() | b.keys())}


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
    """Tell whether two different files came under one key: they name different files, sources or parents."""
    return record_key(a) == record_key(b) and any(
        one and other and one != other
        for one, other in (
            (a.filename, b.filename),
            (a.data_source, b.data_source),
            (a.parent_did, b.parent_did),
        )
    )


def keep_annotations(record: ProvenanceRecord, allowed: frozenset[str]) -> ProvenanceRecord:
    """Return the record with only the allowed annotations; with none left it has no annotations at all."""
    if record.annotations is None:
        return record
    kept = {key: value for key, value in record.annotations.items() if key in allowed}
    return msgspec.structs.replace(record, annotations=kept or None)


class _WireRecord(msgspec.Struct, rename="camel", gc=False):
    """A record as DeltaFi sends it to `POST /provenance`."""

    did: NonEmpty
    final_state: FinalState
    created: _EpochMs
    completed: _EpochMs
    parent_did: str | None = None
    system_name: str | None = None
    data_source: str | None = None
    filename: str | None = None
    transforms: tuple[str, ...] | None = None
    data_sink: str | None = None
    annotations: dict[str, str | None] | None = None


_WIRE = msgspec.json.Decoder(list[_WireRecord])


def decode_records(body: bytes | bytearray | memoryview, *, system_name: str) -> list[ProvenanceRecord]:
    """Decode DeltaFi's JSON array of records; `system_name` goes into those that carry none.

    Empty means absent, as it does for DeltaFi; annotations without a value are left out.

    Raises:
        msgspec.ValidationError: a field is absent, mistyped or out of range; the message ends with its path.
        msgspec.DecodeError: the bytes are no JSON.
        UnicodeDecodeError: a text is no UTF-8.
        RecursionError: the JSON is nested too deeply.
    """
    return [
        ProvenanceRecord(
            did=wire.did,
            parent_did=wire.parent_did or None,
            system_name=wire.system_name or system_name,
            data_source=wire.data_source or "",
            filename=wire.filename or "",
            transforms=wire.transforms or (),
            data_sink=wire.data_sink or None,
            final_state=wire.final_state,
            created=wire.created,
            completed=wire.completed,
            annotations=_present(wire.annotations),
        )
        for wire in _WIRE.decode(body)
    ]


def count_records(body: bytes | bytearray | memoryview) -> int:
    """Count the records that `decode_records` would give, at half the cost, and raise as it does."""
    return len(_WIRE.decode(body))


WIRE_RECORDS = list[_WireRecord]
"""What `decode_records` decodes, for whoever explains why it cannot."""


def _present(annotations: dict[str, str | None] | None) -> dict[str, str] | None:
    if not annotations:
        return None
    return {key: value for key, value in sorted(annotations.items()) if value is not None} or None
