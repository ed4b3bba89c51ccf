"""Taking turns at what a root's compacted files are."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.exporter.layout import RAW

if TYPE_CHECKING:
    from waybill.transport.files import Files

_LOCK: Final = ".compact.lock"


@contextlib.contextmanager
def turn(root: Path, files: Files) -> Iterator[None]:
    """Wait until nobody else publishes or removes compacted files of this root, and keep others waiting."""
    folder = root / RAW.parent
    files.make_folder(folder)
    with locked(folder / _LOCK):
        yield


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until nobody else holds this lock, and keep others waiting.

    Raises:
        OSError: the lock's file cannot be made.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
