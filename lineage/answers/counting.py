"""Counting the records of a place that can sum them itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from waybill.exporter.query import STATS_BY, stats_of, sums_of
from waybill.facets import ProvenanceRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from waybill.exporter import Query
    from waybill.exporter.query import Dimension, Kind, Stats


class Counting(ABC):
    """What is counted follows from tables of sums."""

    @abstractmethod
    def tables(
        self,
        query: Query,
        columns: Sequence[str] = ProvenanceRecord.__struct_fields__,
        *,
        summed_by: Collection[Dimension] | None = None,
    ) -> Iterator[Any]:
        """See `Answers`; with `summed_by`, sums as `waybill.exporter.query.summed` gives them."""

    def stats(self, query: Query) -> Stats:
        """The number of records that answer a query, by kind; see `Answers`."""
        return stats_of(self.tables(query, summed_by=STATS_BY))

    def sums(self, by: Sequence[Dimension], query: Query) -> dict[Kind, int]:
        """The number of records that answer a query, of each kind; see `Answers`."""
        return sums_of(self.tables(query, summed_by=by), by)
