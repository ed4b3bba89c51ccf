"""DeltaFi's response formats, as its own collector sends them; `/api/v1/records` has ours.

Both have the same content. DeltaFi's has instants and transforms as strings, and empty strings for absent
values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from waybill.exporter.query import Stats, Sum
    from waybill.facets import ProvenanceRecord

_KINDS_MAX: Final = 50


class DeltaFiRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of DeltaFi's response to `GET /provenance/query`; instants in RFC 3339."""

    did: str
    parent_did: str
    system_name: str
    data_source: str
    filename: str
    transforms: str
    data_sink: str
    final_state: str
    created: str
    completed: str
    annotations: dict[str, str] | None


class DeltaFiStats(msgspec.Struct, frozen=True, kw_only=True):
    """DeltaFi's response to `GET /provenance/stats`; instants in RFC 3339, absent if there are no records."""

    total_records: int
    by_final_state: dict[str, int]
    by_system_name: dict[str, int]
    by_data_source: dict[str, int]
    oldest_record: str | msgspec.UnsetType = msgspec.UNSET
    newest_record: str | msgspec.UnsetType = msgspec.UNSET


class DeltaFiSum(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of one kind; it has only the fields that were counted by, an hour in RFC 3339."""

    final_state: str | msgspec.UnsetType = msgspec.UNSET
    system_name: str | msgspec.UnsetType = msgspec.UNSET
    data_source: str | msgspec.UnsetType = msgspec.UNSET
    data_sink: str | msgspec.UnsetType = msgspec.UNSET
    hour: str | msgspec.UnsetType = msgspec.UNSET
    count: int


def deltafi_records(records: Sequence[ProvenanceRecord]) -> list[DeltaFiRecord] | None:
    """The records in DeltaFi's format; None if there are none, as Go writes an empty list."""
    return [_record(record) for record in records] or None


def deltafi_stats(stats: Stats) -> DeltaFiStats:
    """The numbers in DeltaFi's format: the most frequent systems and data sources that have a name."""
    return DeltaFiStats(
        total_records=stats.total_records,
        by_final_state=stats.by_final_state,
        by_system_name=_most_frequent(stats.by_system_name),
        by_data_source=_most_frequent(stats.by_data_source),
        oldest_record=msgspec.UNSET if stats.oldest_record is None else _rfc3339(stats.oldest_record),
        newest_record=msgspec.UNSET if stats.newest_record is None else _rfc3339(stats.newest_record),
    )


def deltafi_sums(sums: Sequence[Sum]) -> list[DeltaFiSum]:
    """The numbers by kind in DeltaFi's format."""
    return [
        DeltaFiSum(
            final_state=one.final_state,
            system_name=one.system_name,
            data_source=one.data_source,
            data_sink="" if one.data_sink is None else one.data_sink,
            hour=_rfc3339(one.hour) if isinstance(one.hour, int) else one.hour,
            count=one.count,
        )
        for one in sums
    ]


def _record(record: ProvenanceRecord) -> DeltaFiRecord:
    return DeltaFiRecord(
        did=record.did,
        parent_did=record.parent_did or "",
        system_name=record.system_name,
        data_source=record.data_source,
        filename=record.filename,
        transforms=f"[{', '.join(record.transforms)}]",
        data_sink=record.data_sink or "",
        final_state=record.final_state,
        created=_rfc3339(record.created),
        completed=_rfc3339(record.completed),
        annotations=record.annotations,
    )


def _rfc3339(epoch_ms: int) -> str:
    """An instant as Go writes it, without zeros at the end of its fraction."""
    seconds, milliseconds = divmod(epoch_ms, 1000)
    fraction = f".{milliseconds:03}".rstrip("0").rstrip(".")
    return f"{datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()}{fraction}Z"


def _most_frequent(counts: dict[str, int]) -> dict[str, int]:
    named = Counter({name: count for name, count in counts.items() if name})
    return dict(sorted(named.most_common(_KINDS_MAX)))
