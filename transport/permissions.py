"""Permissions of a home: its user only, or also its group, as the setting `home_mode` says.

The folder's own mode shows which of the two applies, and each new file in it follows.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final, Literal

from .files import Files

HomeMode = Literal["private", "group"]
"""See the setting ``home_mode``."""

_FOLDER_MODES: Final[dict[HomeMode, int]] = {"private": 0o700, "group": stat.S_ISGID | 0o770}
_FILE_MODES: Final[dict[HomeMode, int]] = {"private": 0o600, "group": 0o660}
_OWN: Final = ("journal*", "*.lock", "runner.log")
"""Waybill's files in a home. The default root is the same folder, and a root's files are for its readers."""


def make_private(folder: Path) -> None:
    """Make a folder that only this user can open, if it does not exist; its parents get the usual mode.

    A folder in a home with group access gets group access too.

    Raises:
        OSError: the folder cannot be made.
    """
    if folder.is_dir():
        return
    files = Files()
    files.make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o700)
        if stat.S_IMODE(folder.parent.stat().st_mode) == _FOLDER_MODES["group"]:
            folder.chmod(_FOLDER_MODES["group"])
    files.fsync_folder(folder.parent)


def file_mode(folder: Path) -> int:
    """The mode of a file in a home, or in a folder of a home."""
    is_for_group = stat.S_IMODE(folder.stat().st_mode) == _FOLDER_MODES["group"]
    return _FILE_MODES["group" if is_for_group else "private"]


def open_private(path: Path, flags: int) -> int:
    """Open a file in a home with the flags of `os.open`; the descriptor is not inherited.

    A new file gets the correct mode, whatever the umask.

    Raises:
        OSError: the file cannot be opened or made.
    """
    mode = file_mode(path.parent)
    descriptor = os.open(path, flags | os.O_CLOEXEC, mode)
    if flags & os.O_CREAT and stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with contextlib.suppress(PermissionError):  # another user's file; only they can fix it
            os.fchmod(descriptor, mode)
    return descriptor


def set_home_mode(home: Path, mode: HomeMode) -> bool:
    """Set the modes of a home and of Waybill's files in it; return whether others had access.

    Other users' files are left alone, and so are sticky folders such as ``/tmp``.
    """
    had_access = False
    for path in _own(home):
        wanted = _wanted(path, mode)
        with contextlib.suppress(PermissionError, FileNotFoundError):
            found = stat.S_IMODE(path.stat().st_mode)
            if found != wanted and not found & stat.S_ISVTX:
                path.chmod(wanted)
                had_access = had_access or bool(found & 0o777 & ~wanted)
    return had_access


def open_to_others(home: Path, mode: HomeMode) -> list[Path]:
    """The home and Waybill's files in it, where more users have access than the mode allows."""
    return [path for path in _own(home) if path.stat().st_mode & 0o777 & ~_wanted(path, mode)]


def _wanted(path: Path, mode: HomeMode) -> int:
    return (_FOLDER_MODES if path.is_dir() else _FILE_MODES)[mode]


def _own(home: Path) -> list[Path]:
    """List Waybill's files in a home, and the home itself."""
    files = [path for pattern in _OWN for path in sorted(home.glob(pattern)) if path.is_file()]
    return [*files, *([home] if home.is_dir() else [])]
