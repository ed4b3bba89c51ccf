"""The provenance record: one for each path on which a file ended."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from .annotations import AnnotationRule, as_sent
from .dids import canonicalize_dids

FIRST_MS = 1
"""The earliest instant that a record may contain, in epoch milliseconds; zero counts as missing."""

AFTER_LAST_MS = 253_402_300_800_000
"""The first epoch millisecond of the year 10000, past which readers of Parquet disagree."""

UNREADABLE = (ValueError, msgspec.MsgspecError, RecursionError)
"""The errors that `decode_records`, `decode_event` and `observe` raise for unreadable input."""

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
EpochMs = Annotated[int, msgspec.Meta(ge=FIRST_MS, lt=AFTER_LAST_MS, description="Epoch milliseconds.")]


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
        system_name: the instance that processed it.
        data_source: the flow that it came from.
        filename: its name.
        transforms: the flows that changed it on this path, in order.
        data_sink: the flow that it left through, if it left.
        final_state: how the path ended.
        created: when the file began, in epoch milliseconds.
        completed: when the path ended, in epoch milliseconds.
        annotations: notes about it, sorted by key; None rather than empty.
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

    def __post_init__(self) -> None:
        """Refuse a state that is none."""
        if type(self.final_state) is not FinalState:
            msgspec.structs.force_setattr(self, "final_state", FinalState(self.final_state))


def record_of(  # noqa: PLR0917 - these are the fields of a record, in order
    did: str,
    parent_did: str | None,
    system_name: str,
    data_source: str,
    filename: str,
    transforms: tuple[str, ...],
    data_sink: str | None,
    final_state: FinalState,
    created: int,
    completed: int,
    annotations: dict[str, str] | None,
) -> ProvenanceRecord:
    """Create a record from the values of its fields, in order, as a table or a sender gives them."""
    return ProvenanceRecord(
        did=did,
        parent_did=parent_did,
        system_name=system_name,
        data_source=data_source,
        filename=filename,
        transforms=transforms,
        data_sink=data_sink,
        final_state=final_state,
        created=created,
        completed=completed,
        annotations=annotations,
    )


def passage_of(record: ProvenanceRecord) -> str:
    """The flows that a file passed on one path, from source to sink."""
    return " > ".join(name for name in (record.data_source, *record.transforms, record.data_sink) if name)


def last_part(path: str) -> str:
    """The last part of a path: the filename of a run that is no file, of its data source."""
    return path.rstrip("/").rpartition("/")[2]


def keep_annotations(record: ProvenanceRecord, rule: AnnotationRule | None = None) -> ProvenanceRecord:
    """Return the record with the annotations that the rule keeps; None if there are none left.

    Without a rule all are kept.
    """
    if record.annotations is None:
        return record
    rule = AnnotationRule(frozenset(record.annotations)) if rule is None else rule
    return msgspec.structs.replace(record, annotations=rule.kept(record.annotations))


class SentFields(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """The fields that a sent record and the facet have in common, as they were sent."""

    did: NonEmpty
    parent_did: str | None = None
    system_name: str | None = None
    data_source: str | None = None
    filename: str | None = None
    transforms: tuple[str, ...] | None = None
    data_sink: str | None = None


class RecordFields(SentFields, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """The fields of a record as DeltaFi sends it to `POST /provenance`; the ids are as they were sent."""

    final_state: FinalState
    created: EpochMs
    completed: EpochMs
    annotations: dict[str, str | None] | None = None


class SentRecord(RecordFields, frozen=True, kw_only=True, rename="camel", gc=False, omit_defaults=True):
    """A record as DeltaFi sends it; both ids have the canonical form."""

    def __post_init__(self) -> None:
        """Spell the ids in one way."""
        canonicalize_dids(self, "did", "parent_did")


class _PlainRecord(
    RecordFields, frozen=True, kw_only=True, rename="camel", gc=False, forbid_unknown_fields=True
):
    """A record with only the keys of `SentRecord`, as DeltaFi's own client sends it.

    It is only checked, so its ids stay as they were sent: to spell them would take half as long again.
    """


def complete_values(
    sent: SentFields, *, system_name: str, data_source: str
) -> tuple[str, str | None, str, str, str, tuple[str, ...], str | None]:
    """Return the first values of a record, in order; the two names replace absent ones.

    Empty means absent, as it does for DeltaFi.
    """
    return (
        sent.did,
        sent.parent_did or None,
        sent.system_name or system_name,
        sent.data_source or data_source,
        sent.filename or "",
        sent.transforms or (),
        sent.data_sink or None,
    )


_RECORDS = msgspec.json.Decoder(list[SentRecord])


def decode_records(body: bytes | bytearray | memoryview, *, system_name: str) -> list[ProvenanceRecord]:
    """Decode DeltaFi's JSON array of records; `system_name` is used for those that carry none.

    Empty means absent, as it does for DeltaFi; annotations without a value are left out, and so are those
    whose names are Waybill's own.

    Raises:
        msgspec.ValidationError: a field is absent, mistyped or out of range; the message ends with its path.
        msgspec.DecodeError: the bytes are not JSON.
        UnicodeDecodeError: a text is not UTF-8.
        RecursionError: the JSON is nested too deeply.
    """
    return [
        record_of(
            *complete_values(sent, system_name=system_name, data_source=""),
            sent.final_state,
            sent.created,
            sent.completed,
            as_sent(sent.annotations),
        )
        for sent in decode_sent(body)
    ]


_PLAIN = msgspec.json.Decoder(list[_PlainRecord])
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEYS = {key.lower(): key for key in SentRecord.__struct_encode_fields__}


def decode_sent(body: bytes | bytearray | memoryview) -> list[SentRecord]:
    """Decode the records as they were sent, at half the cost of `decode_records`, and raise as it does."""
    return _RECORDS.decode(body)


def decode_plain(body: bytes) -> Sequence[RecordFields]:
    """Decode records that have no unknown key, with the ids as they were sent, or raise as `decode_sent`."""
    return _PLAIN.decode(body)


def with_plain_keys(body: bytes) -> bytes:
    """Return the body with all keys as `decode_sent` knows them; elements that are not records do not change.

    DeltaFi accepts a key in any case, `Did` for `did`; such a record is rewritten.
    """
    try:
        records = _ELEMENTS.decode(body)
    except msgspec.ValidationError:
        return body
    others = 0
    for at, record in enumerate(records):
        with contextlib.suppress(msgspec.ValidationError):
            members = _MEMBERS.decode(record)
            plain = {_KEYS.get(key.lower(), key): value for key, value in members.items()}
            if plain.keys() != members.keys():
                records[at] = msgspec.Raw(msgspec.json.encode(plain))
                others += 1
    return msgspec.json.encode(records) if others else body
