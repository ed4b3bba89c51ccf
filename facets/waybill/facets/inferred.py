"""The run facets that say on what an end rests: that Waybill inferred it, or who has seen it.

Their JSON Schemas lie beside that of `waybill.facets.delta_file`.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from openlineage.client.generated.base import RunFacet

from waybill.facets.event import facet_schema_url


@attrs.define(kw_only=True)
class WaybillInferredRunFacet(RunFacet):
    """Marks the end of a run as the weakest evidence: the run's own terminal event replaces it."""

    reason: str
    """What it was inferred from."""

    _additional_skip_redact: ClassVar[list[str]] = ["reason"]

    @staticmethod
    def _get_schema() -> str:
        return facet_schema_url("WaybillInferredRunFacet")


@attrs.define(kw_only=True)
class WaybillEvidenceRunFacet(RunFacet):
    """Says who has seen how a run of Spark ended; without it that is the listener alone."""

    source: str
    """One of ``listener``, ``session`` (the session's own watch) and ``event log``."""

    _additional_skip_redact: ClassVar[list[str]] = ["source"]

    @staticmethod
    def _get_schema() -> str:
        return facet_schema_url("WaybillEvidenceRunFacet")
