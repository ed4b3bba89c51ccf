"""A home and a root that need no disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from seam.disks import disk

__all__ = ["disk"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if possible: simulated faults need no slow disk."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder below it has a name of its own
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="waybill-faults-", dir=memory))
    yield folder
    shutil.rmtree(folder)
