"""`waybill` on a disk that fsyncs nothing while a file is there: python slow_disk.py FILE WORDS...

While it lets somebody wait there is FILE.waiting beside it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import apsw

from waybill.cli import main

POLL_S = 0.02


class SlowSqlite(apsw.VFS):
    """SQLite's own file system; by default no connection opens another one."""

    def __init__(self, stop: Path, *, default: bool = True) -> None:
        super().__init__("slow", "unix", makedefault=default)
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


if __name__ == "__main__":
    # SQLite keeps it for as long as the process lives.
    disk = SlowSqlite(Path(sys.argv.pop(1)))
    main()
