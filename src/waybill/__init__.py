"""Waybill: a durable waybill for every file that flows through a data pipeline.

    from waybill import Tracker

    with Tracker(provenance_enabled=True).file("orders.csv", data_source="sftp-in") as f:
        with f.transform("clean"):
            ...
        f.egress("warehouse")

This module has the most common names. The others are in the rooms: `waybill.transport`, `waybill.exporter`,
`waybill.lineage`, `waybill.spark` and `waybill.facets`. A name loads its dependencies on first use.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waybill.exporter import Query as Query
    from waybill.facets import FinalState as FinalState, ProvenanceRecord as ProvenanceRecord
    from waybill.lineage import Journey as Journey, Lineage as Lineage, find as find
    from waybill.transport import (
        AsyncTrackedFile as AsyncTrackedFile,
        AsyncTracker as AsyncTracker,
        Settings as Settings,
        TrackedFile as TrackedFile,
        Tracker as Tracker,
        WaybillError as WaybillError,
        flush as flush,
        tracked as tracked,
    )

    __version__: str

_PACKAGES = {
    "waybill.exporter": {"Query"},
    "waybill.facets": {"FinalState", "ProvenanceRecord"},
    "waybill.lineage": {"Journey", "Lineage", "find"},
    "waybill.transport": {
        "AsyncTrackedFile",
        "AsyncTracker",
        "Settings",
        "TrackedFile",
        "Tracker",
        "WaybillError",
        "flush",
        "tracked",
    },
}
"""The package that each name comes from."""

__all__ = [name for names in _PACKAGES.values() for name in names]


if not TYPE_CHECKING:  # with it, no type checker would find a wrong name

    def __getattr__(name: str) -> object:
        # `waybill.facets.lazy` does the same for the rooms; importing it would load one.
        from importlib import import_module, metadata

        if name == "__version__":
            try:
                return metadata.version("waybill-lineage")
            except metadata.PackageNotFoundError as error:
                raise AttributeError("the version is known only if waybill-lineage is installed") from error
        for package, names in _PACKAGES.items():
            if name in names:
                return getattr(import_module(package), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
