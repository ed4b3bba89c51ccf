"""Asking what was exported: the files that the manifests of a destination list, fetched to be read.

A question lists the manifests, which takes one request for a thousand of them, and reads those of its systems
and days that have changed. Then it fetches the files of its hours, each of which the manifest knows by its
SHA-256.
"""

from __future__ import annotations

import hashlib
import shlex
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from waybill.transport import MissingExtraError, NotFoundError
from waybill.transport.clock import SYSTEM_CLOCK

from ..exporting import MANIFEST, ListedFile, decode_manifest, manifest_path
from ..names import COMPACTED, RAW, RELATIONS, Hour, RawName, hour_in, parse_hour, relative, safe_name
from ..object_stores import local_or_url, open_store
from ..parallel import in_parallel
from ..parquet import DAMAGED, ForeignError, unreadable
from ..relations import read_relations
from ..sources import ObjectGoneError, SourceError, explained, version_of
from .access import Access, Listing

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ObjectStore

    from .query import Query

_TIMEOUT_S: Final = 30.0
"""Somebody waits for the answer, so this is less than an export's."""
_MANIFESTS_AT_ONCE: Final = 16
_FRESH_S: Final = 10.0
"""The questions of one journey list the manifests once."""
_AHEAD: Final = 8
"""So many files are fetched at once, since each takes about as long as a request."""
_FETCHED_MAX: Final = 4_096
"""So many files stay on this machine for further questions: many times what are read together."""


class _Manifest(NamedTuple):
    version: str
    files: Collection[str]


class ExportedFiles(Access):
    """The files at a destination of exports, to read only; one object serves many questions, from any thread.

    Args:
        where: the URL or the path that was given to the export.

    Raises:
        NotFoundError: there is no such folder, or the kind of URL is unknown.
        MissingExtraError: the package for it is not installed.
        StoreError: the URL is otherwise invalid.

    Attributes:
        name: the URL of the destination, without credentials.
        root: the temporary folder to which files are fetched, which a question gets as its root.
    """

    problem: str | None = None

    def __init__(self, where: str) -> None:
        place = local_or_url(where)
        if isinstance(place, str):
            self.name, self._store = open_store(place, _TIMEOUT_S)
        else:
            self.name, self._store = place.as_uri(), _folder(place)
        self._lock = threading.Lock()
        self._listed_s = -_FRESH_S
        self._versions: dict[str, str] = {}
        self._manifests: dict[str, _Manifest] = {}
        self._listed: dict[str, ListedFile] = {}
        self._raws: list[str] = []
        self._fetching: dict[tuple[str, str], Future[Path]] = {}
        self._fetching_lock = threading.Lock()
        self._fetched = tempfile.TemporaryDirectory(prefix="waybill-exported-")
        self._ahead = ThreadPoolExecutor(_AHEAD, thread_name_prefix="waybill-exported")
        self.root = Path(self._fetched.name)

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:  # noqa: ARG002
        """List the files of a query's systems and hours, by the manifests.

        Raises:
            NotFoundError: nothing was exported to this place.
            SourceUnreachableError: the store does not answer.
            SourceError: a manifest is not one.
        """
        system = None if query.system_name is None else safe_name(query.system_name)
        with self._lock:
            self._list()
            wanted = [path for path in self._versions if _is_asked_for(path, query, system)]
            changed = [path for path in wanted if self._version_read(path) != self._versions[path]]
            read = in_parallel(self._read_manifest, changed, workers=_MANIFESTS_AT_ONCE)
            for path, files in zip(changed, read, strict=True):
                self._manifests[path] = _Manifest(self._versions[path], files)
                self._listed |= files
            paths = [path for manifest in wanted for path in self._manifests[manifest].files]
            return _Listed(root, paths, self._raws, self._begin_all)

    def place(self, path: Path) -> Path:
        """Where a file that was listed is on this machine, to which it is fetched.

        Raises:
            SourceUnreachableError: the store does not answer.
            DAMAGED: it is gone, or has fewer records than the manifest lists.
        """
        return self._begin(relative(self.root, path)).result()

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        """The sentence about a file that could not be read, by its URL."""
        place = relative(root, path)
        if path.is_relative_to(root / RAW):
            command = shlex.join(["waybill", "compact", self.name])
            return f"{self.name}/{place} is not compacted yet; run `{command}`"
        return unreadable(f"{self.name}/{place}", error, root=None)

    def relation_files(self) -> dict[str, str]:
        """The files with relations, by path, with what tells one version from another.

        Raises:
            SourceUnreachableError: the store does not answer.
        """
        return self._versions_below(RELATIONS, ".parquet")

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

    def _list(self) -> None:
        """List what is there, unless that was done in this moment."""
        if SYSTEM_CLOCK.monotonic_s() < self._listed_s + _FRESH_S:
            return
        # Raw files come first: what is compacted meanwhile is in a manifest then.
        self._raws = sorted(self._versions_below(RAW, ".parquet"))
        self._versions = self._versions_below(MANIFEST, ".json")
        if not self._versions and not self._raws:
            raise NotFoundError(f"nothing was exported to {self.name}; check the URL")
        self._listed_s = SYSTEM_CLOCK.monotonic_s()

    def _version_read(self, manifest: str) -> str | None:
        read = self._manifests.get(manifest)
        return None if read is None else read.version

    def _read_manifest(self, path: str) -> dict[str, ListedFile]:
        content = self._content(path)
        try:
            files = decode_manifest(content)
        except msgspec.DecodeError as error:
            raise SourceError(
                f"{self.name}/{path} is not a manifest ({error}); move it away and export again"
            ) from None
        for file in files:
            is_compacted = PurePosixPath(file).is_relative_to(COMPACTED) and hour_in(file) is not None
            if not is_compacted or _manifest_of(file) != path:
                what = f"lists {file}, which is no file of the layout; move it away and export again"
                raise SourceError(f"{self.name}/{path} {what}")
        return files

    def _begin_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            self._begin(relative(self.root, path))

    def _begin(self, place: str) -> Future[Path]:
        """Fetch one version of a file, unless that is done already."""
        listed = self._listed.get(place)
        if listed is None:
            raise ForeignError("no manifest lists it")
        key = (place, listed.sha256)
        with self._fetching_lock:
            known = self._fetching.get(key)
            # What failed may be there now.
            if known is None or (known.done() and known.exception()):
                known = self._fetching[key] = self._ahead.submit(self._fetch, place, listed)
            while len(self._fetching) > _FETCHED_MAX:
                oldest = self._fetching.pop(next(iter(self._fetching)))  # it is not empty
                oldest.add_done_callback(_remove)
        return known

    def _fetch(self, place: str, listed: ListedFile) -> Path:
        """Fetch a file, which is the listed one or, until its export ends, one with more records."""
        try:
            content = self._content(place)
        except ObjectGoneError:
            raise ForeignError("the manifest lists it, and it is gone") from None
        if hashlib.sha256(content).hexdigest() != listed.sha256:
            found = ListedFile.of(content)
            # One without a record that was retracted is listed by now.
            if found.rows < listed.rows and self._read_manifest(_manifest_of(place)).get(place) != found:
                raise ForeignError("it has fewer records than the manifest lists")
        with tempfile.NamedTemporaryFile(dir=self.root, suffix=".parquet", delete=False) as file:
            file.write(content)
        return Path(file.name)

    def _versions_below(self, folder: PurePosixPath, suffix: str) -> dict[str, str]:
        """The files below a folder, by path, with what tells one version from another."""
        with explained(f"{self.name}/{folder}"):
            found = [one for batch in self._store.list(str(folder)) for one in batch]
        return {one["path"]: version_of(one) for one in found if one["path"].endswith(suffix)}

    def _content(self, path: str) -> bytes:
        with explained(f"{self.name}/{path}"):
            return bytes(self._store.get(path).bytes())


class _Listed(Listing):
    """The files that manifests list, as if they were below the root.

    Of raw files a question only has to say that they are not compacted yet. None differs: a file that is not
    the listed one cannot be read.
    """

    def __init__(
        self, root: Path, paths: Iterable[str], raws: Iterable[str], begin: Callable[[Iterable[Path]], None]
    ) -> None:
        self._paths: defaultdict[Hour, list[Path]] = defaultdict(list)
        self._raws: defaultdict[Hour, dict[RawName, Path]] = defaultdict(dict)
        self._begin = begin
        for path in sorted(paths):
            if (hour := hour_in(path)) is not None:
                self._paths[hour].append(root / path)
        for path in raws:
            hour, name = hour_in(path), RawName.parse(path.rpartition("/")[2])
            if hour is not None and name is not None:
                self._raws[hour][name] = root / path

    @property
    def hours(self) -> list[Hour]:
        return sorted(self._paths.keys() | self._raws.keys())

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        return self._raws.get(hour, {})

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:  # noqa: ARG002 - no rows move
        paths = self._paths.get(hour, [])
        self._begin(paths)
        return paths


def _folder(place: Path) -> ObjectStore:
    try:
        from obstore.store import LocalStore
    except ImportError:
        raise MissingExtraError(place.as_uri(), "export") from None
    if not place.is_dir():
        raise NotFoundError(f"there is no folder {place}; give the URL that was given to the export")
    return LocalStore(place)


def _manifest_of(place: str) -> str:
    """The path of the manifest that lists a file."""
    _, _, system, day, _ = place.split("/")
    return manifest_path(system, day)


def _is_asked_for(manifest: str, query: Query, system: str | None) -> bool:
    """Whether a manifest may list a file with part of an answer."""
    of_system, name = PurePosixPath(manifest).parts[-2:]
    first, last = (parse_hour(name.removesuffix(".json"), at) for at in ("00", "23"))
    if first is None or last is None:
        return True  # Reading it says what is wrong.
    window = query.window
    is_of_its_time = first.start_ms < window.until_ms and window.since_ms < last.end_ms
    return is_of_its_time and system in {None, of_system}


def _remove(fetched: Future[Path]) -> None:
    if fetched.exception() is None:
        fetched.result().unlink(missing_ok=True)
