"""What a dead process left unpublished."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from waybill.exporter.directory import names
from waybill.transport.files import is_temporary

if TYPE_CHECKING:
    from waybill.transport.files import Files


def sweep(files: Files, folder: Path, name: str = "") -> None:
    """Remove unpublished files; only whoever alone writes there may.

    Args:
        files: the file system.
        folder: where; it need not be there.
        name: only of files whose name begins so.

    Raises:
        OSError: one cannot be removed.
    """
    for found in names(folder):
        if found.startswith(f".{name}") and is_temporary(folder / found):
            files.remove(folder / found)
