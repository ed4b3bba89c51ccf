"""Files that have the same content, by their fingerprints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from waybill.exporter import Query

if TYPE_CHECKING:
    from waybill.transport.journal import FileContent

    from ..index import IndexReader

_DIDS_AT_ONCE: Final = 20_000


class _Begun(NamedTuple):
    created_ms: int
    filename: str
    system_name: str


def find_duplicates(index: IndexReader, ask: Callable[..., Iterator[Any]]) -> list[list[FileContent]]:
    """The files of each content that several files have, in the order in which they began.

    Args:
        index: knows the fingerprints.
        ask: answers queries; the names of the files are in their records.
    """
    contents = index.repeated_contents()
    begun = {
        file.did: _Begun(file.began_ms, file.filename or "", file.system_name) for file in index.open_files()
    }
    begun |= _begun_by_records(sorted({content.did for content in contents}), ask)
    named = [
        msgspec.structs.replace(content, **begun[content.did]._asdict()) if content.did in begun else content
        for content in contents
    ]
    by_fingerprint = groupby(named, attrgetter("fingerprint"))
    return [sorted(alike, key=attrgetter("created_ms")) for _, alike in by_fingerprint]


def _begun_by_records(dids: Sequence[str], ask: Callable[..., Iterator[Any]]) -> dict[str, _Begun]:
    """What the records say of files, by did."""
    columns = ("did", "created", "filename", "system_name")
    found: dict[str, _Begun] = {}
    for at in range(0, len(dids), _DIDS_AT_ONCE):
        for table in ask(Query(dids=frozenset(dids[at : at + _DIDS_AT_ONCE])), columns):
            created_ms = table["created"].cast("int64").to_pylist()
            others = (table[name].to_pylist() for name in ("filename", "system_name"))
            for did, *told in zip(table["did"].to_pylist(), created_ms, *others, strict=True):
                begun = _Begun(*told)
                found[did] = min(found.get(did, begun), begun)
    return found
