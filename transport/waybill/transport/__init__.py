"""How an event is kept: admission, the journal, the projections' runner, and the doors for producers.

Importing this package loads neither pyarrow nor pyspark nor the delivery code: a pipeline that only emits
pays for the journal alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waybill.transport.admission import admit_event, admit_records
    from waybill.transport.config import BackendSetting, Settings
    from waybill.transport.errors import (
        AdmissionError,
        JournalError,
        JournalFullError,
        JournalVersionError,
        SettingsConflictError,
        SettingsError,
        TrackerStateError,
        WaybillError,
    )
    from waybill.transport.journal import Entry, Journal, Kind
    from waybill.transport.receiver import Receiver
    from waybill.transport.runner import FlushReport, Projection, Step, flush
    from waybill.transport.tracker import TrackedFile, Tracker
    from waybill.transport.transport import WaybillConfig, WaybillTransport

__all__ = [
    "AdmissionError",
    "BackendSetting",
    "Entry",
    "FlushReport",
    "Journal",
    "JournalError",
    "JournalFullError",
    "JournalVersionError",
    "Kind",
    "Projection",
    "Receiver",
    "Settings",
    "SettingsConflictError",
    "SettingsError",
    "Step",
    "TrackedFile",
    "Tracker",
    "TrackerStateError",
    "WaybillConfig",
    "WaybillError",
    "WaybillTransport",
    "admit_event",
    "admit_records",
    "flush",
]

_PACKAGES = {
    "waybill.transport.admission": {"admit_event", "admit_records"},
    "waybill.transport.config": {"BackendSetting", "Settings"},
    "waybill.transport.errors": {
        "AdmissionError",
        "JournalError",
        "JournalFullError",
        "JournalVersionError",
        "SettingsConflictError",
        "SettingsError",
        "TrackerStateError",
        "WaybillError",
    },
    "waybill.transport.journal": {"Entry", "Journal", "Kind"},
    "waybill.transport.receiver": {"Receiver"},
    "waybill.transport.runner": {"FlushReport", "Projection", "Step", "flush"},
    "waybill.transport.tracker": {"TrackedFile", "Tracker"},
    "waybill.transport.transport": {"WaybillConfig", "WaybillTransport"},
}
"""Where each name comes from; its package is loaded when the name is asked for."""


def __getattr__(name: str) -> object:
    from importlib import import_module

    for package, names in _PACKAGES.items():
        if name in names:
            return getattr(import_module(package), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
