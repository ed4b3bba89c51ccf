"""What was exported, to read only: the manifests of a destination, and the files that they list."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport import MissingExtraError, NotFoundError

from ..names import RAW, RELATIONS, RawName, hour_in
from ..object_stores import local_or_url, open_store
from ..parquet import DAMAGED, ForeignError, unreadable
from ..relations import read_relations
from ..sources import ObjectGoneError, SourceError, explained, version_of
from .manifest import MANIFEST, ListedFile, decode_manifest

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ObjectStore

_TIMEOUT_S: Final = 30.0
"""Somebody waits for the answer, so this is less than an export's."""


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
        return self._versions(MANIFEST, ".json")

    def raw_files(self) -> list[str]:
        """The raw files, in order, which are there if programs have written to this place without a root.

        Raises:
            SourceUnreachableError: the store does not answer.
        """
        found = self._versions(RAW, ".parquet")
        return sorted(path for path in found if hour_in(path) and RawName.parse(PurePosixPath(path).name))

    def relation_files(self) -> dict[str, str]:
        """The files with relations, by path, with what tells one version from another.

        Raises:
            SourceUnreachableError: the store does not answer.
        """
        return self._versions(RELATIONS, ".parquet")

    def read_relations(self, path: str) -> pa.Table:
        """The rows of a file with relations.

        Raises:
            SourceUnreachableError: the store does not answer, or the file is gone.
            SourceError: it cannot be read.
        """
        content = self._content(path)
        try:
            return read_relations(content)
        except DAMAGED as error:
            raise SourceError(unreadable(f"{self.name}/{path}", error, root=None)) from None

    def read_manifest(self, path: str) -> dict[str, ListedFile]:
        """The files that a manifest lists.

        Raises:
            SourceUnreachableError: the store does not answer, or the manifest is gone.
            SourceError: it is not a manifest.
        """
        content = self._content(path)
        try:
            return decode_manifest(content)
        except msgspec.DecodeError as error:
            raise SourceError(
                f"{self.name}/{path} is not a manifest ({error}); move it away and export again"
            ) from None

    def read(self, path: str) -> bytes:
        """The bytes of a file that a manifest lists.

        Raises:
            SourceUnreachableError: the store does not answer.
            DAMAGED: it is gone.
        """
        try:
            return self._content(path)
        except ObjectGoneError:
            raise ForeignError("the manifest lists it, and it is gone") from None

    def _versions(self, folder: PurePosixPath, suffix: str) -> dict[str, str]:
        """The files below a folder, by path, with what tells one version from another."""
        with explained(f"{self.name}/{folder}"):
            found = [one for batch in self._store.list(str(folder)) for one in batch]
        return {one["path"]: version_of(one) for one in found if one["path"].endswith(suffix)}

    def _content(self, path: str) -> bytes:
        with explained(f"{self.name}/{path}"):
            return bytes(self._store.get(path).bytes())


def _folder(place: Path) -> ObjectStore:
    try:
        from obstore.store import LocalStore
    except ImportError:
        raise MissingExtraError(place.as_uri(), "export") from None
    if not place.is_dir():
        raise NotFoundError(f"there is no folder {place}; give the URL that was given to the export")
    return LocalStore(place)
