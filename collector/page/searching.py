"""The view of the search box: files by did and name, datasets, jobs and columns by words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter import Query
from waybill.facets import ProvenanceRecord
from waybill.facets.arrow import from_table
from waybill.lineage.graph import FoundNode, OfSearch, SearchResult, shown
from waybill.lineage.index import JobRun

from ..http import read_params
from .rendering import link, node_url
from .view import View

if TYPE_CHECKING:
    from waybill.lineage.answers import HomeAnswers

    from .view import Rows

FILES_MAX: Final = 20
NODES_MAX: Final = 50


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    """What a text finds.

    Attributes:
        text: the text.
        records: the newest records of files with this did or this name.
        runs: by did, those of them that are of runs and of no files.
        graph: the datasets and jobs that have its words.
    """

    text: str
    records: list[ProvenanceRecord]
    runs: dict[str, JobRun]
    graph: SearchResult


class Params(msgspec.Struct, frozen=True):
    """The text; ``q`` as everywhere."""

    q: str = ""

    @property
    def asked(self) -> str:
        """What the search box shows."""
        return self.q


def search(answers: HomeAnswers, params: Params) -> Hits:
    """Search for a text."""
    text = params.q.strip()
    if not text:
        return Hits(text="", records=[], runs={}, graph=SearchResult((), 0, is_all=True))
    named = Query(
        filename=text, filename_dids=frozenset({text}), literal=frozenset({"filename"}), limit=FILES_MAX
    )
    found = [record for table in answers.tables(named) for record in from_table(table)]
    runs = answers.job_runs(found, named)
    return Hits(text=text, records=found, runs=runs, graph=answers.answer(OfSearch(text, NODES_MAX)))


def only_hit(hits: Hits) -> str | None:
    """The address of the only file, dataset or job that is called exactly so; None: none or several are."""
    dids = {record.did for record in hits.records}
    exact = [one.node for one in hits.graph.nodes if hits.text in {one.node.name, shown(one.node)}]
    if len(dids) + len(exact) != 1:
        return None
    return link("/file", did=dids.pop()) if dids else node_url(exact[0])


def rows_of(hits: Hits) -> Rows:
    """What is found as a table."""
    yield "kind", "namespace", "name", "columns", "tags", "owners", "description"
    yield from (("file", record.system_name, record.filename, "", "", "", "") for record in hits.records)
    yield from map(_row_of, hits.graph.nodes)


def _row_of(one: FoundNode) -> tuple[str, ...]:
    lists = (", ".join(names) for names in (one.columns, one.tags, one.owners))
    return (one.node.kind.value, one.node.namespace, one.node.name, *lists, one.description)


SEARCH: Final = View(
    "/search", "Search", partial(read_params, kind=Params), search, rows_of, leads_to=only_hit
)
