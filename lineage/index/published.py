"""What was published of an index: that of a root without its home, or of a destination of exports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.directory import FileStamp
from waybill.exporter.incomplete import IncompleteError
from waybill.exporter.names import relative
from waybill.exporter.relations import read_relations, relation_files
from waybill.transport.runner import OpenRun

from .facts import Fact, Kind
from .reading import IndexReader

if TYPE_CHECKING:
    from waybill.exporter.query import ExportedFiles


class FolderRelations:
    """The published files of a root."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def relation_files(self) -> dict[str, str]:
        """The files, by path, with what tells one version from another.

        Raises `OSError` if a folder cannot be read.
        """
        found = {}
        for _, path in relation_files(self._root):
            with contextlib.suppress(FileNotFoundError):
                found[relative(self._root, path)] = repr(FileStamp.of(path.stat()))
        return found

    def read_relations(self, path: str) -> pa.Table:
        """The rows of a file; raises `IncompleteError` if it cannot be read."""
        try:
            return read_relations(self._root / path)
        except parquet.DAMAGED as error:
            sentence = parquet.unreadable(self._root / path, error, root=self._root)
            raise IncompleteError((sentence,)) from None


class Published:
    """Opens what was published at a place; the files are read once.

    Args:
        relations: where the files are.
        folder: the root, or the folder that stands for the place.
    """

    def __init__(self, relations: FolderRelations | ExportedFiles, folder: Path) -> None:
        self._relations = relations
        self._folder = folder
        self._files: dict[str, str] = {}
        self._reader: IndexReader | None = None

    def open(self) -> AbstractContextManager[IndexReader]:
        """A reader of what is published now, which stays open; raises what these files do."""
        files = self._relations.relation_files()
        if self._reader is None or files != self._files:
            tables = [self._relations.read_relations(path) for path in files]
            facts: list[Fact] = []
            begun: list[Fact] = []
            for table in tables:
                is_open = pc.equal(table["kind"], Kind.OPEN)
                facts += _facts_in(table.filter(pc.invert(is_open)))
                begun += _facts_in(table.filter(is_open))
            self._reader = IndexReader.of(facts, map(_begun_in, begun), self._folder)
            self._files = files
        return contextlib.nullcontext(self._reader)


def _facts_in(table: pa.Table) -> Iterator[Fact]:
    columns = [table[name].to_pylist() for name in ("did", "kind", "value")]
    times = table["time"].cast(pa.int64()).to_pylist()
    for did, kind, value, at_ms in zip(*columns, times, strict=True):
        yield Fact(did, kind, value, at_ms, "")


def _begun_in(fact: Fact) -> tuple[OpenRun, int, int]:
    last_ms, begun = _BEGUN.decode(fact.value)
    return begun, fact.at_ms, last_ms


_BEGUN: Final = msgspec.json.Decoder(tuple[int, OpenRun])
