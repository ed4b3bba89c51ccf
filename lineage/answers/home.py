"""Answers of a home: from its files, its index, and what its journal has accepted since."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from waybill.exporter.query import answer, poison_note, read_unsettled
from waybill.facets import ProvenanceRecord, record_key

from ..index import IndexReader
from .indexed import IndexedAnswers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from waybill.exporter import Query
    from waybill.exporter.query import Access, Dimension
    from waybill.exporter.reading import Asker
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

_TOO_MANY: Final = "incomplete: too many runs are not filed yet"


class HomeAnswers(IndexedAnswers):
    """Answers questions about the files of a home; see `Answers`.

    Args:
        journal: its journal.
        settings: its agreed settings.
        access: finds and opens its files.
        asker: who asks.
        backlogs_max: how often the entries that are not in files may be read for one question.
    """

    _journal: Journal

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        access: Access,
        asker: Asker,
        *,
        backlogs_max: int | None = None,
    ) -> None:
        rule = settings.annotation_rule
        super().__init__(settings.root, access, asker, journal=journal, settings=settings, rule=rule)
        self._backlogs_max = backlogs_max

    def _open_index(self) -> AbstractContextManager[IndexReader]:
        return IndexReader.open(self._journal.home, self._journal)

    def _ask(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
        is_beside: bool = False,
    ) -> Iterator[Any]:
        # This comes first: records that are filed meanwhile are then found in the files.
        runs = read_unsettled(self._journal, self._settings, query, now_ms=time.time_ns() // 1_000_000)
        if not runs.is_whole:
            is_on = self._settings.provenance_enabled
            todo = "try again later" if is_on else "turn provenance_enabled on"
            self.notes[f"{_TOO_MANY}; {todo}"] = None
        if not is_beside:
            self.unsettled.update(map(record_key, runs.open))
        yield from answer(
            self._journal,
            self._settings,
            query,
            columns=columns,
            summed_by=summed_by,
            derived=[*runs.settled, *runs.open],
            access=self._access,
            backlogs_max=self._backlogs_max,
        )

    def _note_lacks(self) -> None:
        super()._note_lacks()
        # An entry that was set aside meanwhile became poison when the cursor passed it, so this comes last.
        if (poison := poison_note(self._journal)) is not None:
            self.notes[poison] = None
