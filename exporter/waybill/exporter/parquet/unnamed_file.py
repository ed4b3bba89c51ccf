"""A large file that is not finished yet: on the disk, under no name, so that it does not fill the memory."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import pyarrow as pa


class UnnamedFile:
    """Where bytes go until they are all there; nothing is left of it when it is let go of.

    Args:
        folder: of the file system that it may fill.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - `finish` closes it
        self.sink = pa.PythonFile(self._file, "w")
        """What to write to."""

    def finish(self) -> memoryview:
        """All that was written; it may be changed in place.

        Raises:
            OSError: it could not be written.
        """
        self._file.flush()
        view = memoryview(mmap.mmap(self._file.fileno(), 0))
        self._file.close()
        return view
