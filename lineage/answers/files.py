"""Answers of files alone: of a root that is no home's, or of what was exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from waybill.exporter import Query, reading
from waybill.exporter.query import scan
from waybill.facets import ProvenanceRecord
from waybill.transport import NotFoundError, Settings

from ..kin import by_records
from .counting import Counting
from .naming import check_missing_sink, settle_patterns, unknown_keys, unknown_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from waybill.exporter.query import Access, Dimension
    from waybill.exporter.reading import Asker
    from waybill.facets.merge_rule import RecordKey
    from waybill.transport.journal import FileContent

    from ..index import OpenFile, Published
    from ..journey import Journey


class FileAnswers(Counting):
    """Answers questions about the files of a root; see `Answers`.

    Args:
        root: the root.
        access: finds and opens its files.
        published: what is known of files beside their records.
        asker: who asks.
    """

    knows_open = False

    def __init__(self, root: Path, access: Access, published: Published, asker: Asker) -> None:
        self.notes: dict[str, None] = {}
        self.unsettled: set[RecordKey] = set()
        self._root = root
        self._access = access
        self._published = published
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
        query = self._settled(query)
        is_empty = True
        for table in self._ask(query, columns, summed_by=summed_by):
            is_empty = is_empty and not table.num_rows
            yield table
        if is_empty:
            self.notes.update(dict.fromkeys(unknown_names(query, self._ask)))
            self.notes.update(dict.fromkeys(unknown_keys(query.annotations, self._ask)))
        self._note_what_lacks()

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
        journey = trace(self._ask, did, up=up, down=down, depth=depth, kin=self._published.open())
        self._note_what_lacks()
        if as_of_ms is None:
            return journey
        settings = Settings.load({}, origin="Lineage")
        return trace_as_of(journey, as_of_ms, self._root, None, settings, up=up, down=down, depth=depth)

    def _note_what_lacks(self) -> None:
        """Note what the answer lacks, after all that was read for it."""
        if self._access.problem is not None:
            self.notes[self._access.problem] = None

    def _settled(self, query: Query) -> Query:
        """The query as records can answer it."""
        named = (query.filename, query.data_source, query.data_sink, query.input_dataset, query.producer)
        if named == (None,) * len(named):
            return query
        index = self._published.open()

        def is_input(name: str) -> bool:
            return bool(index.dids_with_input(name))

        return by_records(settle_patterns(query, self._ask, is_input), index)

    def _ask(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        yield from scan(
            self._root,
            query,
            columns=columns,
            summed_by=summed_by,
            access=self._access,
            below=self._below,
        )

    def _below(self, dids: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        return self._published.open().children_of(dids)
