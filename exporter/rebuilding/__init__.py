"""Rebuilds the layout's files from stored entries."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .coalesced import CoalescedCounts as CoalescedCounts, CoalescedFlow as CoalescedFlow
    from .part import Limits as Limits, PartReport as PartReport, read_folded as read_folded
    from .rebuilding import (
        RebuildReport as RebuildReport,
        rebuild as rebuild,
        rebuild_remote as rebuild_remote,
    )
    from .resumable_job import (
        WORK as WORK,
        RebuildError as RebuildError,
        begin_job as begin_job,
        key_of_order as key_of_order,
        place_below as place_below,
    )
    from .spill import (
        GatheredRuns as GatheredRuns,
        StatesByRun as StatesByRun,
        decode_state as decode_state,
        encode_state as encode_state,
    )
    from .wanted import Wanted as Wanted, rule_for as rule_for

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
