"""Answers of a home: from its files, its index, and what its journal has accepted since."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from .graph import GraphAnswers
from .indexed import FileAnswers

if TYPE_CHECKING:
    from waybill.exporter.query import Access, TailReader
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

    from ..graph import Question
    from ..index import IndexReader, KeptIndex

_Answer = TypeVar("_Answer")


class HomeAnswers(FileAnswers):
    """Answers questions about the files of a home; see `Lineage`.

    Args:
        journal: its journal.
        settings: its agreed settings.
        tails: reads what its journal has accepted and its files do not have.
        access: finds and opens its files.
        kept: the index, where it stays open between questions; None: it is opened for each.
    """

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        tails: TailReader,
        access: Access,
        *,
        kept: KeptIndex | None = None,
    ) -> None:
        super().__init__(settings.root, access, self._open_own, settings)
        self._journal, self._rule = journal, settings.annotation_rule
        self._tails = tails
        self._graph = GraphAnswers(journal, kept)
        self._graph.notes = self.notes

    def answer(self, question: Question[_Answer]) -> _Answer:
        """Answer a question about the graph of datasets and jobs; see `Lineage`."""
        return self._graph.answer(question)

    @property
    def waiting(self) -> int:
        """How many accepted entries the last answer about the graph lacks."""
        return self._graph.waiting

    def _open_own(self) -> AbstractContextManager[IndexReader]:
        # This comes before the files: records that are filed meanwhile are then found in them.
        self._tail = self._tails.read(self._settings)
        return self._graph.open()
