"""The records that stored entries hold as DeltaFi sent them, as tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from waybill.facets.columns import decode_table
from waybill.transport.journal import Kind

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BYTES: Final = 16 * 2**20
"""How much is decoded at once: enough for both cores, few copies in memory."""


class AnyEntry(Protocol):
    """A stored entry, wherever it is stored."""

    @property
    def kind(self) -> Kind:
        """What the body is."""

    @property
    def system_name(self) -> str:
        """The name stamped on records that carry none; empty for none."""

    @property
    def body(self) -> bytes:
        """The bytes as accepted."""


_Sent = TypeVar("_Sent", bound=AnyEntry)


def records_in_entries(
    entries: Iterable[_Sent],
    *,
    system_name: str,
    allowed: frozenset[str],
    on_error: Callable[[_Sent, Exception], None],
) -> list[pa.Table]:
    """The records of entries of the kind `Kind.PROVENANCE`.

    Args:
        entries: of any kind.
        system_name: the name for records that neither carry one nor were stamped with one.
        allowed: the annotation keys that are kept.
        on_error: called with an entry that holds no records, and why; it is left out.

    Returns:
        Tables of `waybill.facets.arrow.SCHEMA`.
    """
    stamped: defaultdict[str, list[_Sent]] = defaultdict(list)
    for entry in entries:
        if entry.kind is Kind.PROVENANCE:
            stamped[entry.system_name or system_name].append(entry)
    return [
        _decoded(chunk, stamp, allowed, on_error) for stamp, own in stamped.items() for chunk in _chunks(own)
    ]


def _decoded(
    entries: list[_Sent], stamp: str, allowed: frozenset[str], on_error: Callable[[_Sent, Exception], None]
) -> pa.Table:
    bodies = [entry.body for entry in entries]
    return decode_table(
        bodies, system_name=stamp, allowed=allowed, on_error=lambda at, error: on_error(entries[at], error)
    )


def _chunks(entries: list[_Sent]) -> Iterable[list[_Sent]]:
    chunk: list[_Sent] = []
    size_bytes = 0
    for entry in entries:
        chunk.append(entry)
        size_bytes += len(entry.body)
        if size_bytes >= _CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk
