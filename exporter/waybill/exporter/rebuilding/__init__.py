"""Rebuilding the layout's files from stored entries."""

from __future__ import annotations

from waybill.exporter.rebuilding.job import WORK, Plan, RebuildError, begin_job, key_of_order
from waybill.exporter.rebuilding.part import PartReport, Readable, read_folded
from waybill.exporter.rebuilding.rebuilding import RebuildReport, rebuild
from waybill.exporter.rebuilding.remote import rebuild_remote
from waybill.exporter.rebuilding.spill import StatesByRun, add_run, decode_state, encode_state
from waybill.exporter.rebuilding.wanted import Wanted

__all__ = [
    "WORK",
    "PartReport",
    "Plan",
    "Readable",
    "RebuildError",
    "RebuildReport",
    "StatesByRun",
    "Wanted",
    "add_run",
    "begin_job",
    "decode_state",
    "encode_state",
    "key_of_order",
    "read_folded",
    "rebuild",
    "rebuild_remote",
]
