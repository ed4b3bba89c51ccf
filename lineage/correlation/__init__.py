"""The correlation index: who came from whom, kept up from the journal and asked without opening any file."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from waybill.transport.known_contents import INDEX_NAME as INDEX_NAME

    from .forgetting import DAY_MS as DAY_MS
    from .index import (
        CORRELATION as CORRELATION,
        CorrelationIndex as CorrelationIndex,
        Kin as Kin,
    )
    from .projection import (
        Correlation as Correlation,
        open_correlation as open_correlation,
    )
    from .relations import (
        Relations as Relations,
        sightings_after as sightings_after,
    )
    from .sightings import (
        Content as Content,
        Details as Details,
        Sighting as Sighting,
        sightings_in as sightings_in,
    )
    from .writing import IndexWriter as IndexWriter

_PACKAGES = {
    "waybill.lineage.correlation.forgetting": {"DAY_MS"},
    "waybill.lineage.correlation.index": {"CORRELATION", "CorrelationIndex", "Kin"},
    "waybill.lineage.correlation.projection": {"Correlation", "open_correlation"},
    "waybill.lineage.correlation.relations": {"Relations", "sightings_after"},
    "waybill.lineage.correlation.sightings": {"Content", "Details", "Sighting", "sightings_in"},
    "waybill.lineage.correlation.writing": {"IndexWriter"},
    "waybill.transport.known_contents": {"INDEX_NAME"},
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__, _PACKAGES)
