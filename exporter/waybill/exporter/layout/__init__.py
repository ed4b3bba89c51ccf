"""The layout as a projection: events and records of the journal become raw files."""

from __future__ import annotations

from waybill.exporter.layout.projection import Layout, open_layout

__all__ = [
    "Layout",
    "open_layout",
]
