"""The layout as a projection: writes the journal's events and records to raw files."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .projection import SETTLE_S, Layout, open_layout, write_again
    from .runs import UnsettledRuns

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
