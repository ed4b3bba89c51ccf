"""Objects of a store as files: a source's files may be at a URL as well as on disk.

The name of an object is the URL of the given folder, then `MARK`, then the path below that folder.
"""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Final, NamedTuple

from waybill.exporter.object_stores import StoreError, open_store, reason_of
from waybill.exporter.sources.source import SourceError, SourceUnreachableError

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
    from obstore.exceptions import BaseError

    folder, _, name = url.rstrip("/").rpartition("/")
    try:
        if name and not folder.endswith(":/"):
            try:
                found = _store(folder).head(name)
            except FileNotFoundError:
                pass
            else:
                return [_stored(folder, found)]
        # An empty object has no entries; some stores have one for each folder.
        listed = [one for batch in store.list() for one in batch if one["size"]]
    except (BaseError, OSError) as error:
        raise _unreachable(url, error) from None
    shown = [one for one in listed if not one["path"].rpartition("/")[2].startswith(".")]
    return sorted(_stored(url.rstrip("/"), one) for one in shown)


def _stored(folder: str, found: ObjectMeta) -> StoredObject:
    changed_ms = int(found["last_modified"].timestamp() * 1_000)
    return StoredObject(f"{folder}{MARK}{found['path']}", found["size"], changed_ms)


def read_object(name: str) -> bytes:
    """The bytes of an object; raises `SourceUnreachableError` if it cannot be fetched now."""
    from obstore.exceptions import BaseError

    folder, _, path = name.partition(MARK)
    try:
        return bytes(_store(folder).get(path).bytes())
    except (BaseError, OSError) as error:
        raise _unreachable(shown(name), error) from None


def open_object(name: str, *, buffer_bytes: int = _BUFFER_BYTES) -> io.BufferedReader:
    """Open an object as a file that is fetched in chunks of the given size.

    Raises:
        SourceUnreachableError: it cannot be fetched now; reading also raises this.
    """
    folder, _, path = name.partition(MARK)
    return io.BufferedReader(_Object(_store(folder), path, shown(name)), buffer_bytes)


def open_stored(store: ObjectStore, path: str, url: str) -> io.BufferedReader:
    """Open an object of a store by its path, as `open_object` does; errors call it by `url`."""
    return io.BufferedReader(_Object(store, path, url), _BUFFER_BYTES)


def shown(name: str) -> str:
    """The URL of an object."""
    return name.replace(MARK, "/", 1)


class _Object(io.RawIOBase):
    """An object as a file whose byte ranges are fetched when they are read."""

    def __init__(self, store: ObjectStore, path: str, url: str) -> None:
        from obstore.exceptions import BaseError

        self._store = store
        self._path = path
        self._url = url
        self._at = 0
        try:
            self._size_bytes = store.head(path)["size"]
        except (BaseError, OSError) as error:
            raise _unreachable(url, error) from None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begins = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}
        self._at = begins[whence] + offset
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        from obstore.exceptions import BaseError

        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size_bytes - self._at)
        if length <= 0:
            return 0
        try:
            found = bytes(self._store.get_range(self._path, start=self._at, length=length))
        except (BaseError, OSError) as error:
            raise _unreachable(self._url, error) from None
        view[: len(found)] = found
        self._at += len(found)
        return len(found)


@functools.cache
def _store(folder: str) -> ObjectStore:
    try:
        return open_store(folder)[1]
    except StoreError as error:
        raise SourceError(str(error)) from None


def _unreachable(url: str, error: Exception) -> SourceUnreachableError:
    return SourceUnreachableError(
        f"{url} cannot be read ({reason_of(error)}); check the object store and try again"
    )
