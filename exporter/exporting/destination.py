"""Destinations of an export: a folder, or an object store (S3, Google Cloud Storage, Azure).

A destination contains only whole files, and replaces a file only if it is still the version that was seen: by
a conditional put (``If-Match``) in an object store, by a lock in a folder. A rebuild keeps its progress in
such a place too, with the methods of `BlobStore`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from waybill.transport import WaybillError
from waybill.transport.files import TEMPORARY_SUFFIX, Files, publish, sweep
from waybill.transport.locks import locked

from ..object_stores import TIMEOUT_S, StoreError, local_or_url, open_store, reason_of
from ..sources import open_stored

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from obstore import PutMode

_LOCK: Final = ".waybill-export.lock"


class DestinationError(WaybillError):
    """A destination cannot be used, or fails. The message is one sentence that ends with what to do."""


class ReplacedError(Exception):
    """Another process has written the file in the meantime."""


class Version(msgspec.Struct, frozen=True):
    """The version of a file in a destination, which can only be compared."""

    e_tag: str | None = None
    version: str | None = None


class Destination(Protocol):
    """The operations that an export needs of a destination. Paths are relative to it, and separated by ``/``.

    A method that fails raises `DestinationError`.
    """

    name: str

    def read(self, path: str) -> tuple[bytes, Version] | None:
        """Read a whole file; None if it does not exist."""

    def version(self, path: str) -> Version | None:
        """The version of a file; None if it does not exist."""

    def write(self, path: str, data: ReadableBuffer, replaces: Version | None) -> Version:
        """Write a whole file; it is durable on return.

        `replaces` is the version that must exist; None: no file must exist.

        Raises:
            ReplacedError: another version exists.
            DestinationError: writing failed; either the old file or the new one is there.
        """


class BlobStore(Destination, Protocol):
    """A destination that can also be listed, streamed and emptied; it can be pickled.

    If a method of `Destination` or of this protocol fails, a folder raises the `OSError` itself, and an
    object store raises a `DestinationError`.
    """

    def names(self) -> list[str]:
        """The paths of all files, in order."""

    def open(self, path: str) -> io.BufferedIOBase | None:
        """Open a file for reading in pieces; None if it does not exist."""

    def writing(self, path: str) -> contextlib.AbstractContextManager[Path]:
        """Open a local file for writing; when the block ends without an error, it is put in place, durably.

        An existing file is replaced.
        """

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; missing files are ignored."""


def open_destination(
    where: Path | str, *, timeout_s: float = TIMEOUT_S, files: Files | None = None
) -> Destination:
    """Open a destination by the path of a folder or by a URL: ``s3://``, ``gs://``, ``az://``, ``file://``.

    Raises:
        NotFoundError: this kind of URL cannot be written to, or the URL lacks a character.
        MissingExtraError: the package for it is not installed.
        DestinationError: the URL is otherwise invalid.
    """
    place = local_or_url(str(where))
    if isinstance(place, str):
        return _Bucket(place, timeout_s)
    return _Folder(place, files or Files(), explains=True)


def open_blob_store(where: Path | str, files: Files) -> BlobStore:
    """Open a folder by path, or an object store's folder by URL; raises as `open_destination` does."""
    return _Bucket(where) if isinstance(where, str) else _Folder(where, files)


def key_of(destination: Destination) -> str:
    """A short name for a destination that is also a valid folder name."""
    return hashlib.sha256(destination.name.encode()).hexdigest()[:16]


class _Folder:
    """A folder on a local or mounted file system; it is made when the first file is written.

    An export gets an error as one sentence, a rebuild as it is.
    """

    def __init__(self, folder: Path, files: Files, *, explains: bool = False) -> None:
        self.name = str(folder)
        self._folder = folder
        self._files = files
        self._explains = explains

    def read(self, path: str) -> tuple[bytes, Version] | None:
        with (
            self._explained(),
            contextlib.suppress(FileNotFoundError),
            (self._folder / path).open("rb") as file,
        ):
            return file.read(), _version_of(os.fstat(file.fileno()))
        return None

    def version(self, path: str) -> Version | None:
        with self._explained(), contextlib.suppress(FileNotFoundError):
            return _version_of((self._folder / path).stat())
        return None

    def write(self, path: str, data: ReadableBuffer, replaces: Version | None) -> Version:
        target = self._folder / path
        with self._explained():
            self._files.make_folder(target.parent)
            with locked(self._folder / _LOCK):
                if self.version(path) != replaces:
                    raise ReplacedError
                sweep(self._files, target.parent, f"{target.name}.")
                publish(self._files, target, data)
                return _version_of(target.stat())

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self._explains:
                raise
            what = f"{self.name} cannot be written or read ({error}); fix that and export again"
            raise DestinationError(what) from None

    def names(self) -> list[str]:
        found = (path for path in self._folder.rglob("*") if not path.is_dir())
        return sorted(path.relative_to(self._folder).as_posix() for path in found)

    def open(self, path: str) -> io.BufferedIOBase | None:
        try:
            return (self._folder / path).open("rb")
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[Path]:
        """Write a file under a temporary name, and rename it once it is durable."""
        target = self._folder / path
        self._files.make_folder(target.parent)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
        try:
            yield temporary
            self._files.fsync(temporary)
            self._files.rename(temporary, target)
        except Exception:
            with contextlib.suppress(OSError):
                self._files.remove(temporary)
            raise
        self._files.fsync_folder(target.parent)

    def delete(self, paths: Sequence[str]) -> None:
        """Delete files; the deletion is durable for files directly in the folder."""
        for path in paths:
            self._files.remove(self._folder / path)
        self._files.fsync_folder(self._folder)


def _version_of(status: os.stat_result) -> Version:
    return Version(f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")


class _Bucket:
    """A folder of an object store."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self._given = url, timeout_s
        try:
            self.name, self._store = open_store(url, timeout_s)
        except StoreError as error:
            raise DestinationError(str(error)) from None

    def __reduce__(self) -> tuple[type[_Bucket], tuple[str, float]]:
        """Another process opens the bucket itself, with its own credentials."""
        return _Bucket, self._given

    def read(self, path: str) -> tuple[bytes, Version] | None:
        with self._explained(path), contextlib.suppress(FileNotFoundError):
            found = self._store.get(path)
            return bytes(found.bytes()), Version(found.meta["e_tag"], found.meta["version"])
        return None

    def version(self, path: str) -> Version | None:
        with self._explained(path), contextlib.suppress(FileNotFoundError):
            found = self._store.head(path)
            return Version(found["e_tag"], found["version"])
        return None

    def write(self, path: str, data: ReadableBuffer, replaces: Version | None) -> Version:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: PutMode = "create"
        if replaces is not None:
            mode = {}
            if replaces.e_tag is not None:
                mode["e_tag"] = replaces.e_tag
            if replaces.version is not None:
                mode["version"] = replaces.version
        with self._explained(path):
            try:
                put = self._store.put(path, bytes(data), mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                raise ReplacedError from None
            except FileNotFoundError:
                if replaces is None:
                    raise
                raise ReplacedError from None  # there is nothing to replace
        return Version(put["e_tag"], put["version"])

    def names(self) -> list[str]:
        with self._explained(""):
            return sorted(one["path"] for batch in self._store.list() for one in batch)

    def open(self, path: str) -> io.BufferedIOBase | None:
        if self.version(path) is None:
            return None
        return open_stored(self._store, path, f"{self.name}/{path}")

    @contextlib.contextmanager
    def writing(self, path: str) -> Iterator[Path]:
        """Write a local file, which is then uploaded."""
        with tempfile.TemporaryDirectory(prefix="waybill-blob-") as folder:
            file = Path(folder, "blob")
            yield file
            with self._explained(path):
                self._store.put(path, file)

    def delete(self, paths: Sequence[str]) -> None:
        if paths:
            with self._explained(""), contextlib.suppress(FileNotFoundError):
                self._store.delete(list(paths))

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            what = f"{self.name}/{path}".rstrip("/")
            raise DestinationError(f"{what} failed ({reason_of(error)}); fix that and export again") from None
