"""The export: copies compacted files to a folder or an object store."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .destination import (
        BlobStore as BlobStore,
        Destination as Destination,
        DestinationError as DestinationError,
        ReplacedError as ReplacedError,
        open_blob_store as open_blob_store,
        open_destination as open_destination,
    )
    from .exported import ExportedFiles as ExportedFiles
    from .exporting import Exported as Exported, export as export
    from .fetching import fetch_root as fetch_root
    from .manifest import (
        MANIFEST as MANIFEST,
        ListedFile as ListedFile,
        decode_manifest as decode_manifest,
        manifest_path as manifest_path,
    )
    from .state import (
        ExportedFile as ExportedFile,
        ExportState as ExportState,
        destinations as destinations,
        is_exported as is_exported,
    )

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
