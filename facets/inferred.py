"""The facets with the evidence for an end or a job: that Waybill inferred it, or who has seen it.

Their JSON Schemas are beside that of `waybill.facets.delta_file`.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from openlineage.client.generated.base import JobFacet, RunFacet

from .event import facet_schema_url


@attrs.define(kw_only=True)
class WaybillInferredRunFacet(RunFacet):
    """Marks the end of a run as the weakest evidence: the run's own terminal event replaces it."""

    reason: str
    """The facts from which it was inferred."""

    _additional_skip_redact: ClassVar[list[str]] = ["reason"]

    @staticmethod
    def _get_schema() -> str:
        return facet_schema_url("WaybillInferredRunFacet")


@attrs.define(kw_only=True)
class WaybillInferredJobFacet(JobFacet):
    """Marks what was inferred of a job and not observed, such as from the text of its SQL."""

    reason: str
    """From what it was inferred."""
    confidence: float | None = None
    """How sure that is, from 0 to 1."""
    unread: list[str] | None = None
    """What of the text was not read, in sentences."""

    _additional_skip_redact: ClassVar[list[str]] = ["reason", "confidence", "unread"]

    @staticmethod
    def _get_schema() -> str:
        return facet_schema_url("WaybillInferredJobFacet")


@attrs.define(kw_only=True)
class WaybillEvidenceRunFacet(RunFacet):
    """Names who has seen how a Spark run ended; without it, only the listener has."""

    source: str
    """One of ``listener``, ``session`` (the session's own watch) and ``event log``."""

    _additional_skip_redact: ClassVar[list[str]] = ["source"]

    @staticmethod
    def _get_schema() -> str:
        return facet_schema_url("WaybillEvidenceRunFacet")
