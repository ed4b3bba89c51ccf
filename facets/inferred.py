"""The facets with the evidence for an end or a job: that Waybill inferred it, or who has seen it.

Their JSON Schemas are beside that of `waybill.facets.delta_file`.
"""

from __future__ import annotations

import attrs
from openlineage.client.generated.base import JobFacet, RunFacet

from .own_facet import OwnFacet


@attrs.define(kw_only=True)
class WaybillInferredRunFacet(OwnFacet, RunFacet):
    """Marks the end of a run as the weakest evidence: the run's own terminal event replaces it."""

    reason: str
    """The facts from which it was inferred."""


@attrs.define(kw_only=True)
class WaybillInferredJobFacet(OwnFacet, JobFacet):
    """Marks what was inferred of a job and not observed, such as from the text of its SQL."""

    reason: str
    """From what it was inferred."""
    confidence: float | None = None
    """How sure that is, from 0 to 1."""
    unread: list[str] | None = None
    """What of the text was not read, in sentences."""


@attrs.define(kw_only=True)
class WaybillEvidenceRunFacet(OwnFacet, RunFacet):
    """Names who has seen how a Spark run ended; without it, only the listener has."""

    source: str
    """One of ``listener``, ``session`` (the session's own watch) and ``event log``."""
