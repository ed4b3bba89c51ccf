# ruff: noqa: N815 - the client serialises attributes by their name, which in a facet is camelCase.
"""The run facet of a run that stands for many files of a flow.

A backend that accepts tens of events per second cannot get an event for every file of a busy flow. Its JSON
Schema is beside that of `waybill.facets.delta_file`.
"""

from __future__ import annotations

import attrs
from openlineage.client.generated.base import RunFacet

from .own_facet import OwnFacet


@attrs.define(kw_only=True)
class WaybillSummaryRunFacet(OwnFacet, RunFacet):
    """The outcomes of a flow's files in a period of time, in place of one run for each of them."""

    systemName: str
    """The instance that processes the files."""
    dataSource: str
    """The flow that they came from."""
    windowStart: str
    """When the first of their events was accepted, an ISO 8601 instant; of a transform, when one began it."""
    windowEnd: str
    """When the last one was; of a transform, when the last file left it."""
    events: int
    """How many events this run stands for; none of them is sent."""
    records: int
    """How many paths of files ended: each is one provenance record."""
    byFinalState: dict[str, int]
    """How many of the records have each `FinalState`; states without records are left out."""
    bytes: int
    """The total size of the files' outputs, from their outputStatistics if present."""
    dataSinks: list[str]
    """The flows that they left through, sorted; the first hundred if there are more."""
    transform: str | None = None
    """The transform that the files passed, if the run is one of a transform; `split` if they were split."""
    passed: int | None = None
    """How many of the files that passed the transform went on to another one."""
    complete: int | None = None
    """How many records are COMPLETE; absent if none is. The same holds for the next four."""
    error: int | None = None
    """How many are ERROR."""
    filtered: int | None = None
    """How many are FILTERED."""
    cancelled: int | None = None
    """How many are CANCELLED."""
    split: int | None = None
    """How many are SPLIT."""
    provenanceQuery: str | None = None
    """The URL of the records; absent if no path ended, or if no collector is known."""
