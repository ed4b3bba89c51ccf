"""The export: compacted files go to a folder or an object store."""

from waybill.exporter.exporting.destination import (
    BlobStore as BlobStore,
    Destination as Destination,
    DestinationError as DestinationError,
    ReplacedError as ReplacedError,
    open_blob_store as open_blob_store,
    open_destination as open_destination,
)
from waybill.exporter.exporting.exporting import Exported as Exported, export as export
from waybill.exporter.exporting.fetching import fetch_root as fetch_root
from waybill.exporter.exporting.manifest import MANIFEST as MANIFEST, decode_manifest as decode_manifest
from waybill.exporter.exporting.state import (
    ExportedFile as ExportedFile,
    ExportState as ExportState,
    destinations as destinations,
    is_exported as is_exported,
)
