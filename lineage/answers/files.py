"""Answers of files alone: of a root that is no home's, or of what was exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waybill.exporter import Query, reading
from waybill.exporter.query import scan
from waybill.facets import ProvenanceRecord
from waybill.transport import NotFoundError, Settings

from .counting import Counting
from .naming import check_missing_sink, settle_patterns, unknown_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from waybill.exporter.query import Access, Dimension
    from waybill.exporter.reading import Asker
    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.journal import FileContent

    from ..index import OpenFile
    from ..journey import Journey


class FileAnswers(Counting):
    """Answers questions about the files of a root; see `Answers`.

    Args:
        root: the root.
        access: finds and opens its files.
        asker: who asks.
    """

    knows_open = False

    def __init__(self, root: Path, access: Access, asker: Asker) -> None:
        self.notes: dict[str, None] = {}
        self.unsettled: set[RecordKey] = set()
        self._root = root
        self._access = access
        self._asker = asker

    def tables(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        """The records that answer a query; see `Answers`."""
        query = reading.allow(self._asker, query)
        check_missing_sink(query, self._ask)
        query = settle_patterns(query, self._ask)
        is_empty = True
        for table in self._ask(query, columns, summed_by=summed_by):
            is_empty = is_empty and not table.num_rows
            yield table
        if is_empty:
            self.notes.update(dict.fromkeys(unknown_names(query, self._ask)))
        if self._access.problem is not None:
            self.notes[self._access.problem] = None

    def open_files(self, query: Query) -> list[OpenFile]:  # noqa: ARG002 - as everywhere
        """Raise a `NotFoundError`: files alone do not say what is open."""
        raise NotFoundError("only a home knows what is open; ask the home")

    def duplicates(self) -> list[list[FileContent]]:
        """Raise a `NotFoundError`: files alone have no fingerprints."""
        raise NotFoundError("only a home has fingerprints; open the home in which they were recorded")

    def trace(
        self, did: str, *, up: bool, down: bool, depth: int | None, as_of_ms: int | None = None
    ) -> Journey:
        """The journey of a file; see `Answers`."""
        from ..tracing import trace, trace_as_of  # which loads what reads the archive

        reading.allow(self._asker, Query(did=did))
        journey = trace(self._ask, did, up=up, down=down, depth=depth)
        if as_of_ms is None:
            return journey
        settings = Settings.load({}, origin="Lineage")
        return trace_as_of(journey, as_of_ms, self._root, None, settings, up=up, down=down, depth=depth)

    def _ask(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        yield from scan(self._root, query, columns=columns, summed_by=summed_by, access=self._access)
