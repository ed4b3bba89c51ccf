"""The operating system's calls on a home's other files, the spools and the locks, with a plan of what fails.

The spool has no seam of its own: one write of its own is all that an emitter waits for. So this replaces functions of
the module `os`, for files below one folder, and belongs into a process that is thrown away.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seam.plan import Plan


class FaultySystem:
    """Makes the calls of `os` on files below a folder ask the plan first.

    Args:
        plan: what fails.
        folder: calls on files elsewhere are left alone.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder

    def install(self) -> None:
        """Take the place of the functions, for the rest of this process."""
        self._replace("mkdir", "make folder", lambda path, *_: path)
        self._replace("rename", "rename", lambda _, target, *__: target)
        self._replace("unlink", "delete", lambda path, *_: path)
        self._replace("fsync", "fsync", _path_of)
        self._replace("fdatasync", "fsync", _path_of)
        self._replace("ftruncate", "truncate", lambda descriptor, *_: _path_of(descriptor))
        self._replace("write", "write", lambda descriptor, *_: _path_of(descriptor), self._write_half)
        self._replace("open", "create", _created)

    def _replace(
        self,
        function: str,
        name: str,
        path_of: Callable[..., str | os.PathLike[str] | None],
        half: Callable[..., list[object]] = lambda *_: [],
    ) -> None:
        real = getattr(os, function)

        def faulty(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the real one takes
            path = path_of(*args)
            if path is None or not Path(path).is_relative_to(self._folder):
                return real(*args, **named)
            written: list[object] = []
            try:
                self._plan.reach(name, Path(path), lambda: written.extend(half(real, *args)))
            except OSError:
                # What got some bytes in says how many; the next call hears of the trouble.
                if written:
                    return written[0]
                raise
            return real(*args, **named)

        setattr(os, function, faulty)

    @staticmethod
    def _write_half(real: Callable[[int, bytes], int], descriptor: int, data: bytes) -> list[object]:
        return [real(descriptor, data[: len(data) // 2])]


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _created(path: str | os.PathLike[str], flags: int, *_: int) -> str | os.PathLike[str] | None:
    return path if flags & os.O_CREAT and not os.path.exists(path) else None  # noqa: PTH110 - as it came
