"""Which files have which content, as far as the journal's entries say it in the facet `waybill_fingerprint`.

A row is written in the transaction that keeps the entry. So the content of an acknowledged event is found at
once and by every program of the home, however far the runner is behind, and of two programs that see the same
content at the same moment exactly one is first. The rows stay when
their entries go; see the setting `lineage_retain_days`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import FINGERPRINT_FACET, UNREADABLE, RunEvent, fingerprints_of, parse_instant_us

from .entry import Kind, event_in

if TYPE_CHECKING:
    import apsw

_KEY: Final = FINGERPRINT_FACET.encode()
_COLUMNS: Final = "fingerprint, did, system_name, filename, created_ms, input_bytes, forced"
_PUT: Final = "INSERT INTO fingerprints VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_FIRST: Final = f"SELECT {_COLUMNS} FROM fingerprints WHERE fingerprint = ? ORDER BY seq LIMIT 1"  # noqa: S608 - a text of our own


class FileContent(msgspec.Struct, frozen=True):
    """Which content a file has.

    Attributes:
        fingerprint: files with the same content have the same.
        did: the file.
        filename: empty if it is not known.
        created_ms: when the file began, epoch milliseconds.
        input_bytes: the size of the file as it was stored; None if it is not known.
        forced: whether it was to be processed even if its content was known.
    """

    fingerprint: str
    did: str
    system_name: str
    filename: str
    created_ms: int
    input_bytes: int | None
    forced: bool


def contents_in(kind: int, body: bytes, system_name: str) -> Sequence[FileContent]:
    """The contents that an entry tells; `system_name` is stamped on events that carry none."""
    if kind != Kind.OPENLINEAGE or _KEY not in body:
        return ()
    event = event_in(Kind.OPENLINEAGE, body)
    try:
        return _contents_of(event, system_name) if isinstance(event, RunEvent) else ()
    except UNREADABLE:
        return ()


def _contents_of(event: RunEvent, system_name: str) -> Sequence[FileContent]:
    file = None if event.run.facets is None else event.run.facets.delta_file
    created = (file.created if file else None) or event.eventTime
    return [
        FileContent(
            fingerprint=one.fingerprint,
            did=file.did if file else event.run.runId,
            system_name=(file.system_name if file else None) or system_name,
            filename=(file.filename if file else None) or "",
            created_ms=parse_instant_us(created) // 1_000,
            input_bytes=one.inputBytes,
            forced=one.forced,
        )
        for one in fingerprints_of(event)
    ]


def note_contents(writer: apsw.Connection, contents: Sequence[tuple[int, FileContent]]) -> None:
    """Keep the contents that entries tell, each with the entry's sequence number."""
    for seq, one in contents:
        row = one.fingerprint, one.did, one.system_name, one.filename, one.created_ms, one.input_bytes
        writer.execute(_PUT, (seq, *row, one.forced))


def first_with(reader: apsw.Connection, fingerprint: str) -> FileContent | None:
    """The first file with a content."""
    row = reader.execute(_FIRST, (fingerprint,)).fetchone()
    if row is None:
        return None
    return msgspec.convert(
        dict(zip(FileContent.__struct_fields__, row, strict=True)), FileContent, strict=False
    )
