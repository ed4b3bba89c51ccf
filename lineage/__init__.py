"""Answers about files: where they came from, and what became of them."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .catalog import open_catalog as open_catalog
    from .correlation import (
        CorrelationIndex as CorrelationIndex,
        open_correlation as open_correlation,
    )
    from .file_table import JourneyFile as JourneyFile
    from .journey import (
        Journey as Journey,
        ToldFile as ToldFile,
        ToldJourney as ToldJourney,
    )
    from .kin import Kin as Kin, open_kin as open_kin
    from .lineage import Lineage as Lineage
    from .records import MissingPackageError as MissingPackageError, Records as Records
    from .remote import CollectorReadError as CollectorReadError
    from .tracing import trace as trace, trace_as_of as trace_as_of

_PACKAGES = {
    "waybill.lineage.catalog": {"open_catalog"},
    "waybill.lineage.correlation": {"CorrelationIndex", "open_correlation"},
    "waybill.lineage.file_table": {"JourneyFile"},
    "waybill.lineage.journey": {"Journey", "ToldFile", "ToldJourney"},
    "waybill.lineage.kin": {"Kin", "open_kin"},
    "waybill.lineage.lineage": {"Lineage"},
    "waybill.lineage.records": {"MissingPackageError", "Records"},
    "waybill.lineage.remote": {"CollectorReadError"},
    "waybill.lineage.tracing": {"trace", "trace_as_of"},
}
"""The package of each name."""

__all__ = [name for names in _PACKAGES.values() for name in names]

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__, _PACKAGES)
