"""The layout as a projection: writes the journal's events and records to raw files."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .folding import (
        FOLDED as FOLDED,
        fold_entries as fold_entries,
        folded_without_gap_from as folded_without_gap_from,
        load_runs as load_runs,
    )
    from .projection import Layout as Layout, open_layout as open_layout, write_again as write_again
    from .runs import UnsettledRuns as UnsettledRuns
    from .stored_runs import (
        DUE as DUE,
        OPEN as OPEN,
        SETTLE_S as SETTLE_S,
        has_plain_spark as has_plain_spark,
        key_of as key_of,
    )

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
