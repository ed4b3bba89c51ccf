"""A disk that fsyncs nothing while a file is there; beside it is FILE.waiting while somebody waits."""

from __future__ import annotations

import time
from pathlib import Path

import apsw

POLL_S = 0.02


class SlowSqlite(apsw.VFS):
    """SQLite's own file system, which a connection opens that names it."""

    def __init__(self, stop: Path) -> None:
        self.name = "slow"
        super().__init__(self.name, "unix", makedefault=False)
        self._stop = stop

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return SlowFile(self._stop, name, flags)


class SlowFile(apsw.VFSFile):
    """A file whose fsync waits."""

    def __init__(self, stop: Path, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._stop = stop

    def xSync(self, flags: int) -> None:  # noqa: N802
        while self._stop.exists():
            self._stop.with_suffix(".waiting").touch()
            time.sleep(POLL_S)
        super().xSync(flags)
