"""Tracking: a session whose reads and writes leave a trail, and failures that the listener does not tell."""

from __future__ import annotations

from waybill.spark.tracking.sessions import configure, session

__all__ = [
    "configure",
    "session",
]
