"""Taking turns at what a root's compacted files are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.exporter.names import RAW
from waybill.transport.locks import locked

if TYPE_CHECKING:
    from waybill.transport.files import Files

_LOCK: Final = ".compact.lock"


@contextlib.contextmanager
def root_lock(root: Path, files: Files) -> Iterator[None]:
    """Wait until nobody else publishes or removes compacted files of this root, and keep others waiting."""
    folder = root / RAW.parent
    files.make_folder(folder)
    with locked(folder / _LOCK):
        yield
