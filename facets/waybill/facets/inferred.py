"""The run facet of an event that Waybill has inferred: nobody who took part in the run has sent it.

Its JSON Schema lies beside that of `waybill.facets.delta_file`.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from openlineage.client.generated.base import RunFacet

_CLASS = "WaybillInferredRunFacet"
SCHEMA_URL = f"https://openlineage.io/spec/facets/1-0-0/{_CLASS}.json#/$defs/{_CLASS}"
"""Where the facet's schema is published; the version in it is a SchemaVer and what it names never changes."""


@attrs.define(kw_only=True)
class WaybillInferredRunFacet(RunFacet):
    """Marks the end of a run as the weakest evidence: the run's own terminal event replaces it."""

    reason: str
    """What it was inferred from."""

    _additional_skip_redact: ClassVar[list[str]] = ["reason"]

    @staticmethod
    def _get_schema() -> str:
        return SCHEMA_URL
