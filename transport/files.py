"""The seam between Waybill and the file system.

All writes below a root go through `Files`. It has one method for each system call that can fail, so that the
fault tests can stop, fail or undo each of them without patching.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

TEMPORARY_SUFFIX = ".tmp"

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""The errors of file systems without hard links."""

_NOT_MADE_HERE = frozenset({errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP})
"""The errors of a folder in which nobody here can have made one, such as that of automatic mounts."""


class Files:
    """The real file system. Every method raises `OSError` when its system call fails."""

    def make_folder(self, path: Path) -> None:
        """Create a folder and its parents, and make their names durable."""
        missing = []
        while not path.is_dir():
            missing.append(path)
            path = path.parent
        # Whoever made an empty one may have died before its name was durable. Nothing is put into it earlier.
        try:
            if not _has_entries(path):
                self.fsync_folder(path.parent)
        except OSError as error:
            if error.errno not in _NOT_MADE_HERE:
                raise
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
            self.fsync_folder(folder.parent)

    def write(self, path: Path, data: ReadableBuffer) -> None:
        """Write a whole new file. It is not durable before `fsync`."""
        with _named(path), path.open("wb", buffering=0) as file:
            view = memoryview(data).cast("B")
            while view:
                view = view[file.write(view) :]

    def fsync(self, path: Path) -> None:
        """Make the content of a file durable."""
        _sync_path(path, os.O_RDONLY)

    def rename(self, source: Path, target: Path) -> None:
        """Rename `source` to `target` atomically, replacing it."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; raises `FileExistsError` if the name is taken."""
        os.link(source, target)

    def fsync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        _sync_path(path, os.O_RDONLY | os.O_DIRECTORY)

    def remove(self, path: Path) -> None:
        """Delete a file, if it exists."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Delete a folder, if it exists and is empty."""
        try:
            path.rmdir()
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT}:
                raise


def sync(descriptor: int) -> None:
    """Make a file or folder durable; on macOS that needs more than an fsync, see its fcntl(2)."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def _has_entries(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return any(entries)


def _sync_path(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        with _named(path):
            sync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have an error of a descriptor name the path, as those of a path do."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def publish(files: Files, path: Path, data: ReadableBuffer) -> None:
    """Write a whole file or nothing, even in a crash: temporary name, write, fsync, rename, fsync the folder.

    An existing file is replaced. The owner of the folder may remove temporary files left by crashes, see
    `is_temporary`.

    Raises:
        OSError: a step failed; the temporary file is removed and `path` is unchanged.
    """
    with _written(files, path, data) as temporary:
        files.rename(temporary, path)
    files.fsync_folder(path.parent)


def publish_new(files: Files, path: Path, data: ReadableBuffer) -> None:
    """Publish a file under an unused name; an existing file with the same bytes counts as success.

    Raises:
        FileExistsError: a file of this name has other bytes; it is unchanged.
        OSError: a step failed; the temporary file is removed.
    """
    try:
        with _written(files, path, data) as temporary:
            _give_name(files, temporary, path)
    except FileExistsError:
        if memoryview(path.read_bytes()) != memoryview(data).cast("B"):
            raise
    files.fsync_folder(path.parent)


def _give_name(files: Files, temporary: Path, path: Path) -> None:
    try:
        files.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(
                errno.EEXIST, os.strerror(errno.EEXIST), str(temporary), None, str(path)
            ) from None
        files.rename(temporary, path)
    else:
        files.remove(temporary)


@contextlib.contextmanager
def _written(files: Files, path: Path, data: ReadableBuffer) -> Iterator[Path]:
    """Write a durable file under a temporary name beside `path`; remove it if the block fails."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        files.write(temporary, data)
        files.fsync(temporary)
        yield temporary
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise


def open_at_once(path: str, flags: int) -> int:
    """Open a file, for `open`'s `opener`, without waiting for the other end of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


def publish_alone(files: Files, path: Path, data: ReadableBuffer) -> None:
    """Publish a file that has only one writer: make its folder, and remove what crashes left of it."""
    files.make_folder(path.parent)
    sweep(files, path.parent, f"{path.name}.")
    publish(files, path, data)


def sweep(files: Files, folder: Path, name: str = "") -> None:
    """Remove a folder's temporary files left by crashes, for files whose names begin with `name`.

    Only the sole writer of these files may call it. The folder need not exist.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for found in sorted(os.listdir(folder)):  # noqa: PTH208 - a folder may have thousands of names
            if found.startswith(f".{name}") and is_temporary(folder / found):
                files.remove(folder / found)


def is_temporary(path: Path) -> bool:
    """Whether a file was left by an unfinished `publish`."""
    return path.name.startswith(".") and path.name.endswith(TEMPORARY_SUFFIX)
