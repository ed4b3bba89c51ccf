"""Answers of files alone: of a root that is no home's, or of what was exported."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from waybill.facets import AnnotationRule
from waybill.facets.annotations import ALL
from waybill.transport import NotFoundError, Settings

from .indexed import IndexedAnswers

if TYPE_CHECKING:
    from waybill.exporter.query import Access
    from waybill.exporter.reading import Asker

    from ..graph import Question
    from ..index import IndexReader, Published

_Answer = TypeVar("_Answer")

_ANY: Final = AnnotationRule(frozenset({ALL}))
"""Each home that files there has a rule of its own."""


class FileAnswers(IndexedAnswers):
    """Answers questions about the files of a root; see `Lineage`.

    Args:
        root: the root.
        access: finds and opens its files.
        published: what is known of files beside their records.
        asker: who asks.
        settings: the user's; None: those of the environment and of files.
    """

    def __init__(
        self, root: Path, access: Access, published: Published, asker: Asker, settings: Settings | None = None
    ) -> None:
        settings = settings or Settings.load({}, origin="Lineage")
        super().__init__(root, access, asker, journal=None, settings=settings, rule=_ANY)
        self._published = published

    def answer(self, question: Question[_Answer]) -> _Answer:
        """Raise a `NotFoundError`: the graph is only in the home that filed the records."""
        about = getattr(question, "name", "datasets and jobs")
        raise NotFoundError(f"{self._root} has only records; ask the home that filed them about {about!r}")

    def _open_index(self) -> AbstractContextManager[IndexReader]:
        return contextlib.nullcontext(self._published.open())
