"""Links from files to their jobs on Marquez's page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from waybill.exporter import Query
from waybill.facets import ProvenanceRecord
from waybill.facets.arrow import from_table
from waybill.facets.flows import FlowNode, Step, StepKind
from waybill.marquez.graph import JOURNEY_PREFIX, JobGraph, full_name
from waybill.marquez.links import page_url
from waybill.transport import Journal
from waybill.transport.config import MARQUEZ

if TYPE_CHECKING:
    import pyarrow as pa

Ask = Callable[..., "Iterator[pa.Table]"]

SHOWN_MAX: Final = 3
"""How many addresses are printed at most."""


class MarquezPage:
    """The page that shows the jobs of a home's files.

    Args:
        ask: answers queries for records.
    """

    def __init__(self, base: str, journal: Journal, ask: Ask) -> None:
        self._base = base
        self._graph = JobGraph(journal.state(MARQUEZ, JOURNEY_PREFIX))
        self._ask = ask
        self._sources: dict[str, str | None] = {}

    def url(self, record: ProvenanceRecord) -> str | None:
        """The address of the job that has the file's run, or a summary of it; None if it is not known."""
        source = FlowNode(record.system_name, record.data_source)
        if len(record.transforms) == 1:
            (only,) = record.transforms
            if not self._graph.draws(Step(source, StepKind.TRANSFORM, only)):
                # A run without the facet: its job counts as the transform.
                return page_url(self._base, record.system_name, only)
        parents = self._graph.split_into(source) if record.parent_did is not None else set()
        if not parents:
            return page_url(self._base, *source)
        name, *others = (one.name for one in parents)
        parent = self._parent(str(record.parent_did)) if others else name
        return (
            None if parent is None else page_url(self._base, source.namespace, full_name(source.name, parent))
        )

    def urls(self, records: Iterable[ProvenanceRecord]) -> list[str]:
        """The first `SHOWN_MAX` addresses of the jobs of several files, each once."""
        found: dict[str, None] = {}
        for record in records:
            if (url := self.url(record)) is not None:
                found[url] = None
            if len(found) == SHOWN_MAX:
                break
        return list(found)

    def _parent(self, did: str) -> str | None:
        if did not in self._sources:
            query = Query(did=did, limit=1)
            found = (record for table in self._ask(query) for record in from_table(table))
            self._sources[did] = next((record.data_source for record in found), None)
        return self._sources[did]
