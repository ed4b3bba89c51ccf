"""How an event is kept: admission, the journal, the projections' runner, and the doors for producers.

Importing this package loads neither pyarrow nor pyspark nor the delivery code: a pipeline that only emits
pays for the journal alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.transport.admission import admit_event, admit_records
from waybill.transport.backends import BackendSetting
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
from waybill.transport.flushing import FlushReport, flush
from waybill.transport.journal import Entry, Journal, Kind
from waybill.transport.projection import Projection, Step
from waybill.transport.settings import Settings
from waybill.transport.tracker import TrackedFile, Tracker

if TYPE_CHECKING:
    from waybill.transport.receiver import Receiver
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


def __getattr__(name: str) -> object:
    # The OpenLineage client's transports load requests and yaml, which only a program that emits needs.
    if name in {"WaybillConfig", "WaybillTransport"}:
        from waybill.transport import transport

        return getattr(transport, name)
    if name == "Receiver":  # the same of http.server
        from waybill.transport import receiver

        return receiver.Receiver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
