"""The correlation index: who came from whom, kept up from the journal and asked without opening any file."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from waybill.lineage.correlation.forgetting import DAY_MS as DAY_MS
    from waybill.lineage.correlation.index import (
        CORRELATION as CORRELATION,
        CorrelationIndex as CorrelationIndex,
        Kin as Kin,
    )
    from waybill.lineage.correlation.projection import (
        Correlation as Correlation,
        open_correlation as open_correlation,
    )
    from waybill.lineage.correlation.relations import (
        Relations as Relations,
        sightings_after as sightings_after,
    )
    from waybill.lineage.correlation.sightings import (
        Content as Content,
        Details as Details,
        Sighting as Sighting,
        sightings_in as sightings_in,
    )
    from waybill.lineage.correlation.writing import IndexWriter as IndexWriter
    from waybill.transport.known_contents import INDEX_NAME as INDEX_NAME

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
