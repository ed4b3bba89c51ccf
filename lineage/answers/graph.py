"""Answers of a home about its graph, from the index alone: nothing that reads files is loaded for them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from waybill.transport.errors import NotFoundError

from ..index import IndexReader

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

    from ..graph import Question
    from ..index import KeptIndex

_Answer = TypeVar("_Answer")


class GraphAnswers:
    """Answers questions about the graph of a home; see `Lineage`.

    Args:
        journal: its journal.
        kept: the index, where it stays open between questions; None: it is opened for each.

    Attributes:
        waiting: how many accepted entries the last answer lacks.
    """

    def __init__(self, journal: Journal, kept: KeptIndex | None = None) -> None:
        self.notes: dict[str, None] = {}
        self.waiting = 0
        self._journal = journal
        self._kept = kept

    def answer(self, question: Question[_Answer]) -> _Answer:
        """Answer a question about the graph of datasets and jobs; see `Lineage`."""
        with self.open() as index:
            lacks, self.waiting = index.graph_lacks(), index.graph_waiting
            self.notes.update(dict.fromkeys(lacks))
            try:
                return index.answer(question)
            except NotFoundError as error:
                missing = str(error)
        # Raised here, it is no reason to close an index that is kept.
        raise NotFoundError("; ".join([missing, *lacks]))

    def open(self) -> AbstractContextManager[IndexReader]:
        """The index without the records that are in no file yet."""
        if self._kept is not None:
            return self._kept.open()
        return IndexReader.open(self._journal.home, self._journal)
