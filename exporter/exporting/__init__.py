"""The export: copies compacted files to a folder or an object store."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .destination import (
        BlobStore,
        Destination,
        DestinationError,
        ReplacedError,
        open_blob_store,
        open_destination,
    )
    from .exporting import Exported, export
    from .fetching import fetch_root
    from .manifest import MANIFEST, ListedFile, decode_manifest, manifest_path
    from .state import ExportedFile, ExportState, destinations, is_exported

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
