"""The catalog of a root: which of its files hold what is asked for."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .exported import ExportedCatalog as ExportedCatalog, open_exported as open_exported
    from .listing import Catalog as Catalog
    from .making import (
        CatalogReport as CatalogReport,
        forget_catalog as forget_catalog,
        keep_catalog as keep_catalog,
        keep_step as keep_step,
    )
    from .projection import CATALOG as CATALOG, open_catalog as open_catalog

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
