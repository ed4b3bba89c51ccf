"""Retention: what is old enough goes, from the layout and from the archive."""

from __future__ import annotations

from waybill.exporter.retention.archive import age_off_archive
from waybill.exporter.retention.layout import AgedOff, age_off

__all__ = [
    "AgedOff",
    "age_off",
    "age_off_archive",
]
