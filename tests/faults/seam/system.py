"""The system calls on a home's locks, and the fsync of its log, with a plan of failures.

They have no seam of their own. So this replaces functions of the module `os` for files below one folder: in a
disposable process, or by what puts the real ones back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seam.plan import Plan

Args = tuple[Any, ...]


class FaultySystem:
    """Makes calls of `os` on files below a folder consult the plan first.

    Args:
        plan: the plan of failures.
        folder: calls on other files are left alone, except the fsync of its parent folder.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder

    def install(self, replace: Callable[[Any, str, Any], None] = setattr) -> None:
        """Replace the functions, for the rest of this process unless `replace` takes it back."""
        self._set = replace
        plan = self._plan  # whose disk is another one after each loss of power
        self._replace("mkdir", "make folder", _path)
        self._replace("rename", "rename", _target, lambda path, args: plan.disk.renamed(Path(args[0]), path))
        self._replace("unlink", "delete", _path, lambda path, _: plan.disk.removed(path))
        self._replace("fsync", "fsync", _open_path, lambda path, _: plan.disk.synced(path))
        self._replace("fdatasync", "fsync", _open_path, lambda path, _: plan.disk.synced(path))
        self._replace(
            "ftruncate", "truncate", _open_path, lambda path, args: plan.disk.truncated(path, args[1])
        )
        self._replace("write", "write", _open_path, lambda path, args: plan.disk.wrote(path, None, args[1]))
        self._replace("open", "create", _created_path, lambda path, _: plan.disk.created(path))

    def _replace(
        self,
        function: str,
        name: str,
        path_of: Callable[[Args], Path | None],
        note: Callable[[Path, Args], object] = lambda *_: None,
    ) -> None:
        real = getattr(os, function)

        def faulty(*args: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the real one takes
            path = path_of(args)
            if path is None or not (path.is_relative_to(self._folder) or path == self._folder.parent):
                return real(*args, **named)
            written: list[int] = []

            def half() -> None:
                if name == "write":
                    written.append(real(args[0], args[1][: len(args[1]) // 2]))

            try:
                self._plan.reach(name, path, half)
            except OSError:
                # A partial write returns its number of bytes; the next call gets the error.
                if written:
                    return written[0]
                raise
            result = real(*args, **named)
            note(path, args)
            return result

        self._set(os, function, faulty)


def _path(args: Args) -> Path:
    return Path(args[0])


def _target(args: Args) -> Path:
    return Path(args[1])


def _open_path(args: Args) -> Path:
    return Path(f"/proc/self/fd/{args[0]}").readlink()


def _created_path(args: Args) -> Path | None:
    return Path(args[0]) if args[1] & os.O_CREAT and not Path(args[0]).exists() else None
