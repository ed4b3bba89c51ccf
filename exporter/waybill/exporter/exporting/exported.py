"""What was exported, to read only: the manifests of a destination, and ranges of the files that they list.

Nothing is asked of a file but the ranges that somebody reads. The end of a file, where its footer is, comes
with the first request, and a small file comes whole.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from waybill.exporter.exporting.manifest import MANIFEST, ListedFile, decode_manifest
from waybill.exporter.names import RAW, RawName, hour_in
from waybill.exporter.object_stores import local_or_url, open_store, reason_of
from waybill.exporter.parquet import ForeignError, Selectable
from waybill.exporter.sources import SourceError, SourceUnreachableError
from waybill.transport import MissingExtraError, NotFoundError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_TIMEOUT_S: Final = 30.0
"""Somebody waits for the answer, so this is less than an export's."""

_WHOLE_BYTES: Final = 2**18
_RANGE_BYTES: Final = 2**16
"""No less is asked for: a shorter range takes as long."""


class ExportedFiles:
    """The files at a destination of exports, to read only. Paths are relative to it.

    Args:
        where: the URL or the path that was given to the export.

    Raises:
        NotFoundError: there is no such folder, or the kind of URL is unknown.
        MissingExtraError: the package for it is not installed.
        StoreError: the URL is otherwise invalid.

    Attributes:
        name: its URL, without credentials.
    """

    def __init__(self, where: str) -> None:
        place = local_or_url(where)
        if isinstance(place, str):
            self.name, self._store = open_store(place, _TIMEOUT_S)
        else:
            self.name, self._store = place.as_uri(), _folder(place)

    def manifests(self) -> dict[str, str]:
        """The manifests, by path, with what tells one version from another.

        Raises:
            SourceUnreachableError: the store does not answer.
        """
        with self._explained(str(MANIFEST)):
            found = [one for batch in self._store.list(str(MANIFEST)) for one in batch]
        return {
            one["path"]: _version_of(one) for one in found if PurePosixPath(one["path"]).suffix == ".json"
        }

    def raw_files(self) -> list[str]:
        """The raw files, in order, which are there if programs have written to this place without a root.

        Raises:
            SourceUnreachableError: the store does not answer.
        """
        with self._explained(str(RAW)):
            found = [one["path"] for batch in self._store.list(str(RAW)) for one in batch]
        return sorted(path for path in found if hour_in(path) and RawName.parse(PurePosixPath(path).name))

    def read_manifest(self, path: str) -> dict[str, ListedFile]:
        """The files that a manifest lists.

        Raises:
            SourceUnreachableError: the store does not answer, or the manifest is gone.
            SourceError: it is not a manifest.
        """
        with self._explained(path):
            content = bytes(self._store.get(path).bytes())
        try:
            return decode_manifest(content)
        except msgspec.DecodeError as error:
            raise SourceError(
                f"{self.name}/{path} is not a manifest ({error}); move it away and export again"
            ) from None

    def open(self, path: str, listed: ListedFile) -> Selectable:
        """Open a file that a manifest lists.

        Raises:
            SourceUnreachableError: the store does not answer; reading also raises this.
            DAMAGED: it is gone, or is not a readable Parquet file of the layout.
        """
        ranges = _Ranges(self._store, path, f"{self.name}/{path}", listed.size_bytes)
        return Selectable(pa.PythonFile(ranges, "r"))

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        with _explained(f"{self.name}/{path}"):
            yield


def _folder(place: Path) -> ObjectStore:
    try:
        from obstore.store import LocalStore
    except ImportError:
        raise MissingExtraError(place.as_uri(), "export") from None
    if not place.is_dir():
        raise NotFoundError(f"there is no folder {place}; give the URL that was given to the export")
    return LocalStore(place)


@contextlib.contextmanager
def _explained(url: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise SourceUnreachableError(
            f"{url} cannot be read ({reason_of(error)}); check the object store and try again"
        ) from None


def _version_of(meta: ObjectMeta) -> str:
    return meta["e_tag"] or f"{meta['size']} {meta['last_modified'].isoformat()}"


class _Ranges(io.RawIOBase):
    """A file at a destination, of which ranges are fetched when they are read.

    All of them are of one version: if the file is replaced meanwhile, reading fails.
    """

    def __init__(self, store: ObjectStore, path: str, url: str, listed_bytes: int) -> None:
        self._store = store
        self._path = path
        self._url = url
        self._at = 0
        self._version: str | None = None
        self._size_bytes = listed_bytes
        try:
            self._end = self._last_range()
        except (_OtherSizeError, SourceUnreachableError):
            # It has been replaced since the manifest was read, or the store does not answer.
            with _explained(url):
                self._size_bytes = store.head(path)["size"]
            self._version = None
            self._end = self._last_range()
        self._kept = self._end

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
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size_bytes - self._at)
        if length <= 0:
            return 0
        begin, data = next((one for one in (self._end, self._kept) if self._is_in(one, length)), (0, b""))
        if not data:
            begin = self._at
            data = self._fetch(begin, min(begin + max(length, _RANGE_BYTES), self._size_bytes))
            if len(data) <= _RANGE_BYTES:
                self._kept = begin, data
        view[:length] = data[self._at - begin : self._at - begin + length]
        self._at += length
        return length

    def _is_in(self, one: tuple[int, bytes], length: int) -> bool:
        begin, data = one
        return begin <= self._at and self._at + length <= begin + len(data)

    def _last_range(self) -> tuple[int, bytes]:
        begin = 0 if self._size_bytes <= _WHOLE_BYTES else self._size_bytes - _RANGE_BYTES
        return begin, self._fetch(begin, self._size_bytes)

    def _fetch(self, begin: int, end: int) -> bytes:
        if begin >= end:
            return b""
        with _explained(self._url):
            try:
                found = self._store.get(self._path, options={"range": (begin, end)})
            except FileNotFoundError:
                raise _GoneError from None
            meta, data = found.meta, bytes(found.bytes())
        version = _version_of(meta)
        if self._version is None:
            if meta["size"] != self._size_bytes:
                raise _OtherSizeError
            self._version = version
        elif version != self._version:
            raise SourceUnreachableError(f"{self._url} was replaced while it was read; ask again")
        return data


class _OtherSizeError(Exception):
    """The file does not have the size that the manifest says."""


class _GoneError(ForeignError):
    """The file is not there."""

    def __init__(self) -> None:
        super().__init__("the manifest lists it, and it is gone")
