"""Answers of a home: from its files, its index, and what its journal has accepted since."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from waybill.exporter.query import NO_TAIL, Conditions, poison_note, scan
from waybill.facets import ProvenanceRecord, record_key
from waybill.facets.arrow import from_table

from .graph import GraphAnswers
from .indexed import IndexedAnswers

if TYPE_CHECKING:
    from waybill.exporter import Query
    from waybill.exporter.query import Access, Dimension, TailReader
    from waybill.exporter.reading import Asker
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

    from ..graph import Question
    from ..index import IndexReader, KeptIndex

_Answer = TypeVar("_Answer")


class HomeAnswers(IndexedAnswers):
    """Answers questions about the files of a home; see `Answers`.

    Args:
        journal: its journal.
        settings: its agreed settings.
        tails: reads what its journal has accepted and its files do not have.
        access: finds and opens its files.
        asker: who asks.
        kept: the index, where it stays open between questions; None: it is opened for each.
    """

    _journal: Journal

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        tails: TailReader,
        access: Access,
        asker: Asker,
        *,
        kept: KeptIndex | None = None,
    ) -> None:
        rule = settings.annotation_rule
        super().__init__(settings.root, access, asker, journal=journal, settings=settings, rule=rule)
        self._tails = tails
        self._tail = NO_TAIL
        self._graph = GraphAnswers(journal, asker, kept)
        self._graph.notes = self.notes

    def answer(self, question: Question[_Answer]) -> _Answer:
        """Answer a question about the graph of datasets and jobs; see `Answers`."""
        return self._graph.answer(question)

    @property
    def waiting(self) -> int:
        """How many accepted entries the last answer about the graph lacks."""
        return self._graph.waiting

    def _open_index(self) -> AbstractContextManager[IndexReader]:
        # This comes before the files: records that are filed meanwhile are then found in them.
        self._tail = self._tails.read(self._settings)
        return self._graph.open()

    def _ask(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
        is_beside: bool = False,
        is_ordered: bool = True,
    ) -> Iterator[Any]:
        if not is_beside and self._tail.unsettled.num_rows:
            unsettled = Conditions(query).filter(self._tail.unsettled)
            self.unsettled.update(map(record_key, from_table(unsettled)))
        yield from scan(
            self._root,
            query,
            tail=self._tail,
            columns=columns,
            summed_by=summed_by,
            access=self._access,
            is_ordered=is_ordered,
        )

    def _note_lacks(self) -> None:
        super()._note_lacks()
        # An entry that was set aside meanwhile became poison when the cursor passed it, so this comes last.
        if (poison := poison_note(self._journal)) is not None:
            self.notes[poison] = None
