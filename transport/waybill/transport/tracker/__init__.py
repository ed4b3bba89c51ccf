"""The Tracker: a Python program says what happens to each file, as it happens."""

from __future__ import annotations

from waybill.transport.tracker.tracker import TrackedFile, Tracker

__all__ = [
    "TrackedFile",
    "Tracker",
]
