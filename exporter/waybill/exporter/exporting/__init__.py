"""The export: compacted files go to a folder or an object store."""

from __future__ import annotations

from waybill.exporter.exporting.destination import (
    Destination,
    DestinationError,
    ReplacedError,
    open_destination,
)
from waybill.exporter.exporting.exporting import Exported, export
from waybill.exporter.exporting.fetching import fetch_root
from waybill.exporter.exporting.manifest import MANIFEST, decode_manifest
from waybill.exporter.exporting.state import ExportState, destinations, is_exported

__all__ = [
    "MANIFEST",
    "Destination",
    "DestinationError",
    "ExportState",
    "Exported",
    "ReplacedError",
    "decode_manifest",
    "destinations",
    "export",
    "fetch_root",
    "is_exported",
    "open_destination",
]
