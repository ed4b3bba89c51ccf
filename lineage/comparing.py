"""Comparing two runs by their stored events: what they read and wrote, with which columns, SQL and owners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from waybill.exporter.verification import mentioning, run_event
from waybill.facets import canonical_did, parse_instant_us
from waybill.facets.spark_writes import written
from waybill.transport.errors import NotFoundError
from waybill.transport.journal import Kind

from .graph import EdgeKind, Node, NodeKind, shown
from .graph.observing import job_of, observe_part, parts_of
from .graph.properties import owners_in, sql_in, types_in

if TYPE_CHECKING:
    from waybill.exporter.sources import Source
    from waybill.facets import RunEvent


class RunDifference(msgspec.Struct, frozen=True):
    """Something in which two runs differ.

    Attributes:
        what: ``job``, ``owner``, ``sql``, ``input``, ``output`` or ``column``, which says its type.
        of: the job of the first run, the dataset, or the column behind its dataset and a dot.
        first: what the first run says; None: nothing.
        second: what the second one says.
    """

    what: str
    of: str
    first: str | None
    second: str | None


class RunDiff(msgspec.Struct, frozen=True):
    """In which two runs differ.

    Attributes:
        first: the id of the first run.
        second: that of the second.
        differences: by what they are about.
    """

    first: str
    second: str
    differences: tuple[RunDifference, ...]


def compare_runs(first: str, second: str, sources: Sequence[Source]) -> RunDiff:
    """Compare two runs. Of several events of a run, what the last one says counts.

    Raises:
        NotFoundError: no event of a run is stored.
        SourceError: a source is damaged or cannot be reached.
        OSError: one cannot be read.
    """
    first, second = canonical_did(first), canonical_did(second)
    events: dict[str, list[RunEvent]] = {first: [], second: []}
    for _, stored in mentioning(events, sources):
        event = run_event(stored.body) if stored.kind is Kind.OPENLINEAGE else None
        if event is not None and (run := canonical_did(event.run.runId)) in events:
            events[run].append(event)
    for run, told in events.items():
        if not told:
            raise NotFoundError(f"no event of the run {run} is stored; give the id of a run")
    differences = _Run(events[first]).compare(_Run(events[second]))
    return RunDiff(first, second, tuple(one for one in differences if one.first != one.second))


class _Run:
    """What the events of a run say, the last one the most."""

    def __init__(self, events: Iterable[RunEvent]) -> None:
        self._of_job: dict[str, str] = {}
        self._used: dict[str, dict[str, None]] = {"input": {}, "output": {}}
        self._types: dict[str, dict[str, str]] = {}
        self._owners: dict[str, str] = {}
        for event in sorted(events, key=lambda one: parse_instant_us(one.eventTime)):
            parts = [observe_part(part) for part in parts_of(event)]
            facets = {key: facet for told in parts for key, facet in told.properties.items()}
            job = job_of(event.job)
            said = {
                "job": shown(job),
                "owner": _owners_in(facets, job),
                "sql": sql_in(facets.get((job, "sql"), "{}")),
            }
            self._of_job |= {what: text for what, text in said.items() if text}
            read = [edge.source for told in parts for edge in told.edges if edge.kind is EdgeKind.READ]
            wrote = [Node(NodeKind.DATASET, one.namespace, one.name) for one in written(event)]
            for what, datasets in (("input", read), ("output", wrote)):
                self._used[what] |= dict.fromkeys(map(shown, datasets))
            for dataset in (*read, *wrote):
                if types := types_in(facets.get((dataset, "schema"), "{}")):
                    self._types[shown(dataset)] = types
                if owners := _owners_in(facets, dataset):
                    self._owners[shown(dataset)] = owners

    def compare(self, other: _Run) -> Iterator[RunDifference]:
        """Everything that either run says; of columns and owners, what both know of the same dataset."""
        job = self._of_job["job"]
        for what in ("job", "owner", "sql"):
            yield RunDifference(what, job, self._of_job.get(what), other._of_job.get(what))
        for what, used in self._used.items():
            for name in sorted({*used, *other._used[what]}):
                yield RunDifference(
                    what, name, *(name if name in some else None for some in (used, other._used[what]))
                )
        for name in sorted(self._types.keys() & other._types.keys()):
            first, second = self._types[name], other._types[name]
            for column in sorted({*first, *second}):
                yield RunDifference("column", f"{name}.{column}", first.get(column), second.get(column))
        for name in sorted(self._owners.keys() & other._owners.keys()):
            yield RunDifference("owner", name, self._owners[name], other._owners[name])


def _owners_in(facets: Mapping[tuple[Node, str], str], of: Node) -> str:
    return ", ".join(sorted(owners_in(facets.get((of, "ownership"), "{}"))))
