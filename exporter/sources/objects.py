"""Objects of a store as files: a source's files may be at a URL as well as on disk.

The name of an object is the URL of the given folder, then `MARK`, then the path below that folder.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ..object_stores import StoreError, open_store, reason_of
from .source import SourceError, SourceUnreachableError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

MARK: Final = "!/"
"""Separates the folder from the path in the name of an object."""

_BUFFER_BYTES: Final = 8 * 2**20


class StoredObject(NamedTuple):
    """An object in a store's listing."""

    name: str
    size_bytes: int
    changed_ms: int


def list_objects(url: str) -> list[str]:
    """The name of the object at a URL, or of all objects below it; raises as `look_up_objects` does."""
    return [one.name for one in look_up_objects(url)]


def look_up_objects(url: str) -> list[StoredObject]:
    """The object at a URL, or all objects below it, in order; there may be none.

    Raises:
        SourceUnreachableError: the store cannot be queried.
        SourceError: the kind of URL is unknown, or the package for it is not installed.
    """
    store = _store(url)
    folder, _, name = url.rstrip("/").rpartition("/")
    with explained(url):
        if name and not folder.endswith(":/"):
            try:
                found = _store(folder).head(name)
            except FileNotFoundError:
                pass
            else:
                return [_stored(folder, found)]
        # An empty object has no entries; some stores have one for each folder.
        listed = [one for batch in store.list() for one in batch if one["size"]]
    shown = [one for one in listed if not one["path"].rpartition("/")[2].startswith(".")]
    return sorted(_stored(url.rstrip("/"), one) for one in shown)


def _stored(folder: str, found: ObjectMeta) -> StoredObject:
    changed_ms = int(found["last_modified"].timestamp() * 1_000)
    return StoredObject(f"{folder}{MARK}{found['path']}", found["size"], changed_ms)


def read_object(name: str) -> bytes:
    """The bytes of an object; raises `SourceUnreachableError` if it cannot be fetched now."""
    folder, _, path = name.partition(MARK)
    with explained(shown(name)):
        return bytes(_store(folder).get(path).bytes())


def open_object(name: str, *, buffer_bytes: int = _BUFFER_BYTES) -> io.BufferedReader:
    """Open an object as a file that is fetched in chunks of the given size.

    Raises:
        SourceUnreachableError: it cannot be fetched now; reading also raises this.
    """
    folder, _, path = name.partition(MARK)
    return io.BufferedReader(ObjectFile(_store(folder), path, shown(name)), buffer_bytes)


def open_stored(store: ObjectStore, path: str, url: str) -> io.BufferedReader:
    """Open an object of a store by its path, as `open_object` does; errors call it by `url`."""
    return io.BufferedReader(ObjectFile(store, path, url), _BUFFER_BYTES)


def shown(name: str) -> str:
    """The URL of an object."""
    return name.replace(MARK, "/", 1)


class ObjectGoneError(SourceUnreachableError):
    """There is no such object."""


@contextlib.contextmanager
def explained(url: str) -> Iterator[None]:
    """Raise errors of a store as one sentence about a URL; raises `SourceUnreachableError`."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        kind = ObjectGoneError if isinstance(error, FileNotFoundError) else SourceUnreachableError
        raise kind(
            f"{url} cannot be read ({reason_of(error)}); check the object store and try again"
        ) from None


def version_of(meta: ObjectMeta) -> str:
    """What tells one version of an object from another."""
    return meta["e_tag"] or f"{meta['size']} {meta['last_modified'].isoformat()}"


class ObjectFile(io.RawIOBase):
    """One version of an object as a file, of which ranges are fetched when they are read.

    Args:
        store: where it is.
        path: its path there.
        url: what errors call it.

    Raises:
        ObjectGoneError: it is not there; reading also raises this.
        SourceUnreachableError: it cannot be fetched now, or has been replaced; reading also raises this.
    """

    def __init__(self, store: ObjectStore, path: str, url: str) -> None:
        self._store = store
        self._path = path
        self._url = url
        self._at = 0
        with explained(url):
            found = store.head(path)
        self._size_bytes, self._version = found["size"], version_of(found)

    def readable(self) -> bool:
        """Whether it can be read: it can."""
        return True

    def seekable(self) -> bool:
        """Whether it can be sought: it can."""
        return True

    def tell(self) -> int:
        """The place that is read next."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Read on at another place, which is returned."""
        begins = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}
        self._at = begins[whence] + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what fits into a buffer; return how many bytes."""
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size_bytes - self._at)
        if length <= 0:
            return 0
        view[:length] = self._read_range(self._at, self._at + length)
        self._at += length
        return length

    def _read_range(self, begin: int, end: int) -> bytes:
        with explained(self._url):
            found = self._store.get(self._path, options={"range": (begin, end)})
            meta, data = found.meta, bytes(found.bytes())
        if meta["size"] != self._size_bytes or version_of(meta) != self._version:
            raise SourceUnreachableError(f"{self._url} was replaced while it was read; try again")
        return data


@functools.cache
def _store(folder: str) -> ObjectStore:
    try:
        return open_store(folder)[1]
    except StoreError as error:
        raise SourceError(str(error)) from None
