"""A destination in an object store as a folder here, so that it can be verified as any root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from waybill.exporter.exporting.manifest import MANIFEST
from waybill.exporter.names import COMPACTED
from waybill.exporter.sources import MARK, SourceError, list_objects, read_object, shown
from waybill.transport.files import Files

_KINDS: Final = (COMPACTED, MANIFEST)


def fetch_root(url: str, folder: Path, *, on_progress: Callable[[int, int], None]) -> None:
    """Copy the compacted files and the manifests of an object store's folder, one at a time in memory.

    Args:
        url: the folder's.
        folder: where to; it has to be empty.
        on_progress: told how many files are here, and how many there are.

    Raises:
        SourceUnreachableError: the object store does not give them.
        SourceError: there are none.
        OSError: one cannot be written here.
    """
    found = [(kind, name) for kind in _KINDS for name in list_objects(f"{url}/{kind}")]
    if not found:
        raise SourceError(f"there are no provenance files below {url}; give the folder that was exported to")
    for at, (kind, name) in enumerate(found):
        on_progress(at, len(found))
        below = PurePosixPath(name.partition(MARK)[2])
        if ".." in below.parts:
            raise SourceError(f"{shown(name)} cannot be a file of a folder; remove it there")
        path = folder / kind / below
        Files().make_folder(path.parent)
        path.write_bytes(read_object(name))
    on_progress(len(found), len(found))
