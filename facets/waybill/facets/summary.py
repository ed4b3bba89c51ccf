# ruff: noqa: N815 - the client serialises attributes by their name, which in a facet is camelCase.
"""The run facet of a run that stands for many files of a flow.

A backend that takes tens of events a second cannot be told of every file of a busy flow. Its JSON Schema lies
beside that of `waybill.facets.delta_file`.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from openlineage.client.generated.base import RunFacet

from waybill.facets.event import facet_schema_url

SUMMARY_FACET = "waybill_summary"
"""The facet's key among a run's facets."""

SCHEMA_URL = facet_schema_url("WaybillSummaryRunFacet")
"""Where the facet's schema is published."""


@attrs.define(kw_only=True)
class WaybillSummaryRunFacet(RunFacet):
    """What became of the files of a flow in a stretch of time, in place of a run for each of them."""

    systemName: str
    """The instance that handles the files."""
    dataSource: str
    """The flow they came in by."""
    windowStart: str
    """When the first of their events was accepted, an ISO 8601 instant."""
    windowEnd: str
    """When the last one was."""
    events: int
    """How many events this run stands for; none of them is sent."""
    records: int
    """How many paths of files ended in them: each is one provenance record."""
    byFinalState: dict[str, int]
    """How many of the records have each `FinalState`; states that no record has are left out."""
    bytes: int
    """The size of the files' outputs together, as far as their outputStatistics tell."""
    dataSinks: list[str]
    """The flows they left by, sorted; the first hundred where there are more."""
    provenanceQuery: str | None = None
    """Where to query the records; absent where no path ended."""

    _additional_skip_redact: ClassVar[list[str]] = [
        "systemName",
        "dataSource",
        "windowStart",
        "windowEnd",
        "byFinalState",
        "dataSinks",
        "provenanceQuery",
    ]

    @staticmethod
    def _get_schema() -> str:
        return SCHEMA_URL
