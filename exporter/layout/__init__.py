"""The layout as a projection: writes the journal's events and records to raw files."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .folding import FOLDED, fold_entries, folded_without_gap_from, load_runs
    from .projection import Layout, open_layout, write_again
    from .runs import UnsettledRuns
    from .stored_runs import SETTLE_S, has_plain_spark

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
