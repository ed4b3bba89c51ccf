"""How records become files: raw files, compacted files, and the way back to records.

Importing this package loads pyarrow; only the runner and whoever asks do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waybill.exporter.archive import open_archive
    from waybill.exporter.compaction import Compactor
    from waybill.exporter.exporting import DestinationError, export, open_destination
    from waybill.exporter.layout import open_layout
    from waybill.exporter.query import Query, compare, find
    from waybill.exporter.rebuilding import RebuildError, Wanted, rebuild
    from waybill.exporter.retention import age_off, age_off_archive
    from waybill.exporter.sources import Source, SourceError, SourceUnreachableError, Stored, open_source
    from waybill.exporter.verification import check, explain

__all__ = [
    "Compactor",
    "DestinationError",
    "Query",
    "RebuildError",
    "Source",
    "SourceError",
    "SourceUnreachableError",
    "Stored",
    "Wanted",
    "age_off",
    "age_off_archive",
    "check",
    "compare",
    "explain",
    "export",
    "find",
    "open_archive",
    "open_destination",
    "open_layout",
    "open_source",
    "rebuild",
]

_PACKAGES = {
    "waybill.exporter.archive": {"open_archive"},
    "waybill.exporter.compaction": {"Compactor"},
    "waybill.exporter.exporting": {"DestinationError", "export", "open_destination"},
    "waybill.exporter.layout": {"open_layout"},
    "waybill.exporter.query": {"Query", "compare", "find"},
    "waybill.exporter.rebuilding": {"RebuildError", "Wanted", "rebuild"},
    "waybill.exporter.retention": {"age_off", "age_off_archive"},
    "waybill.exporter.sources": {"Source", "SourceError", "SourceUnreachableError", "Stored", "open_source"},
    "waybill.exporter.verification": {"check", "explain"},
}
"""Where each name comes from; its package is loaded when the name is asked for."""


def __getattr__(name: str) -> object:
    from importlib import import_module

    for package, names in _PACKAGES.items():
        if name in names:
            return getattr(import_module(package), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
