"""Rebuilding the layout's files from stored entries."""

from __future__ import annotations

from waybill.exporter.rebuilding.embedded import RebuildReport, rebuild
from waybill.exporter.rebuilding.there import rebuild_there
from waybill.exporter.rebuilding.wanted import Wanted
from waybill.exporter.rebuilding.work import RebuildError

__all__ = ["RebuildError", "RebuildReport", "Wanted", "rebuild", "rebuild_there"]
