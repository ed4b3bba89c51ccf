"""Copying a destination from an object store to a local folder, to verify it like any root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

from waybill.transport.files import Files

from ..names import COMPACTED
from ..sources import MARK, SourceError, list_objects, read_object, shown
from .manifest import MANIFEST

_KINDS: Final = (COMPACTED, MANIFEST)


def fetch_root(url: str, folder: Path, *, on_progress: Callable[[int, int], None]) -> None:
    """Copy the compacted files and manifests below a URL to an empty folder, with one in memory at a time.

    Raises:
        SourceUnreachableError: the object store does not answer.
        SourceError: there are none.
        OSError: a file cannot be written here.
    """
    found = [(kind, name) for kind in _KINDS for name in list_objects(f"{url}/{kind}")]
    if not found:
        raise SourceError(f"there are no provenance files below {url}; give the folder of an export")
    for at, (kind, name) in enumerate(found):
        on_progress(at, len(found))
        below = PurePosixPath(name.partition(MARK)[2])
        if ".." in below.parts:
            raise SourceError(f"{shown(name)} is not a valid path in a folder; remove it there")
        path = folder / kind / below
        Files().make_folder(path.parent)
        path.write_bytes(read_object(name))
    on_progress(len(found), len(found))
