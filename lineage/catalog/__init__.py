"""The catalog of a root: which of its files hold what is asked for."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .exported import (
        ExportedCatalog as ExportedCatalog,
        open_exported as open_exported,
    )
    from .listing import Catalog as Catalog
    from .making import (
        CatalogReport as CatalogReport,
        forget_catalog as forget_catalog,
        keep_catalog as keep_catalog,
        keep_step as keep_step,
    )
    from .projection import CATALOG as CATALOG, open_catalog as open_catalog

_PACKAGES = {
    "waybill.lineage.catalog.exported": {"ExportedCatalog", "open_exported"},
    "waybill.lineage.catalog.listing": {"Catalog"},
    "waybill.lineage.catalog.making": {"CatalogReport", "forget_catalog", "keep_catalog", "keep_step"},
    "waybill.lineage.catalog.projection": {"CATALOG", "open_catalog"},
}
"""The module of each name."""

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__, _PACKAGES)
