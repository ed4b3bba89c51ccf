"""Rebuilds the layout's files from stored entries."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .coalesced import CoalescedFlow, counted_flows
    from .part import Limits, PartReport, read_folded
    from .rebuilding import RebuildReport, rebuild, rebuild_remote
    from .resumable_job import WORK, RebuildError, begin_job, key_of_order, place_below
    from .spill import GatheredRuns, StatesByRun, decode_state, encode_state
    from .wanted import Wanted, rule_for

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
