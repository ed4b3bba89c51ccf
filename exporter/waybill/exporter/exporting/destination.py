"""Where an export goes: a folder, or an object store of S3, Google or Azure.

A destination holds whole files only, and replaces one only where it is still the one that was seen: a
conditional put (``If-Match``) on an object store, a lock on a folder.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from waybill.exporter.object_stores import TIMEOUT_S, StoreError, is_url, open_store, reason_of
from waybill.transport import WaybillError
from waybill.transport.files import Files, publish, sweep
from waybill.transport.locks import locked

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from obstore import PutMode
    from obstore.store import ObjectStore

_LOCK: Final = ".waybill-export.lock"


class DestinationError(WaybillError):
    """A destination cannot be used, or fails; its text is one sentence that ends with the way out."""


class ReplacedError(Exception):
    """Somebody else wrote the file meanwhile."""


class Version(msgspec.Struct, frozen=True):
    """Which one of a path's files a destination holds; only comparing it with another means anything."""

    e_tag: str | None = None
    version: str | None = None


class Destination(Protocol):
    """What an export asks of a destination. Paths are relative to it, with ``/`` between their parts."""

    name: str

    def read(self, path: str) -> tuple[bytes, Version] | None:
        """A whole file; None where there is none.

        Raises:
            DestinationError: it cannot be read.
        """

    def version(self, path: str) -> Version | None:
        """Which file is there; None where there is none.

        Raises:
            DestinationError: it cannot be asked.
        """

    def write(self, path: str, data: ReadableBuffer, replaces: Version | None) -> Version:
        """Put a whole file in its place, durable on return.

        Args:
            path: where.
            data: the file.
            replaces: which file must be there; None: there must be none.

        Raises:
            ReplacedError: another file is there.
            DestinationError: it cannot be written; what was there still is, or the new file is.
        """


def open_destination(where: str, *, timeout_s: float = TIMEOUT_S, files: Files | None = None) -> Destination:
    """Open a destination by the path of a folder or by a URL: ``s3://``, ``gs://``, ``az://``, ``file://``.

    Raises:
        DestinationError: the URL is of no kind that can be written, or the package for it is not installed.
    """
    if not is_url(where):
        path = urlsplit(where).path if "://" in where else where
        return Folder(Path(path).expanduser().absolute(), files or Files())
    try:
        return Bucket(*open_store(where, timeout_s))
    except StoreError as error:
        raise DestinationError(str(error)) from None


def key_of(destination: Destination) -> str:
    """A short name for a destination, which a folder can have."""
    return hashlib.sha256(destination.name.encode()).hexdigest()[:16]


class Folder:
    """A folder of a local or mounted file system; made when the first file is written."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.name = str(folder)
        self._folder = folder
        self._files = files

    def read(self, path: str) -> tuple[bytes, Version] | None:
        """A whole file."""
        try:
            with (self._folder / path).open("rb") as file:
                return file.read(), _version_of(os.fstat(file.fileno()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure(error) from None

    def version(self, path: str) -> Version | None:
        """Which file is there."""
        try:
            return _version_of((self._folder / path).stat())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure(error) from None

    def write(self, path: str, data: ReadableBuffer, replaces: Version | None) -> Version:
        """Put a whole file in its place."""
        target = self._folder / path
        try:
            self._files.make_folder(target.parent)
            with locked(self._folder / _LOCK):
                if self.version(path) != replaces:
                    raise ReplacedError
                sweep(self._files, target.parent, f"{target.name}.")
                publish(self._files, target, data)
                return _version_of(target.stat())
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> DestinationError:
        return DestinationError(f"{self.name} cannot be written or read ({error}); mend it, and export again")


def _version_of(status: os.stat_result) -> Version:
    return Version(f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}")


class Bucket:
    """A folder of an object store."""

    def __init__(self, name: str, store: ObjectStore) -> None:
        self.name = name
        self._store = store

    def read(self, path: str) -> tuple[bytes, Version] | None:
        """A whole file."""
        from obstore.exceptions import BaseError

        try:
            found = self._store.get(path)
            return bytes(found.bytes()), Version(found.meta["e_tag"], found.meta["version"])
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._failure(path, error) from None

    def version(self, path: str) -> Version | None:
        """Which file is there."""
        from obstore.exceptions import BaseError

        try:
            found = self._store.head(path)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise self._failure(path, error) from None
        return Version(found["e_tag"], found["version"])

    def write(self, path: str, data: ReadableBuffer, replaces: Version | None) -> Version:
        """Put a whole file in its place."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        mode: PutMode = "create"
        if replaces is not None:
            mode = {}
            if replaces.e_tag is not None:
                mode["e_tag"] = replaces.e_tag
            if replaces.version is not None:
                mode["version"] = replaces.version
        try:
            put = self._store.put(path, bytes(data), mode=mode, use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            raise ReplacedError from None
        except (BaseError, OSError) as error:
            if replaces is not None and isinstance(error, FileNotFoundError):
                raise ReplacedError from None  # nothing is there to be replaced
            raise self._failure(path, error) from None
        return Version(put["e_tag"], put["version"])

    def _failure(self, path: str, error: Exception) -> DestinationError:
        return DestinationError(
            f"{self.name}/{path} failed ({reason_of(error)}); mend that, and export again"
        )
