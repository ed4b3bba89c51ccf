"""Asking what was exported: the files that the manifests of a destination list, by keys on this machine.

    manifests.json                             what the manifests list, each as it was when it was read
    provenance/keys/…                          the keys: see `contents`

The keys are not exported with the files. Several roots, rebuilds and compactions write to a destination at
once and merge each other's files; to keep common keys there, each would have to replace what the others
wrote. Made by those who ask, they need no right to write there, and they cannot differ from the files: a file
is known by its path and the SHA-256 that the manifest gives. So each file is read once here.

A question lists the manifests, which takes one request for a thousand of them, and fetches those that have
changed. Then it reads the files that the keys do not know, the newest first; what is beyond a bound, it opens
as if there were no keys. A question by kind reads nothing first: it opens the files that the keys do not
have, and of the others those with such records, or none to count them.
"""

from __future__ import annotations

import contextlib
import hashlib
import shlex
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.errors import NotFoundError, reason_of
from waybill.transport.files import Files, publish
from waybill.transport.locks import locked

from .. import parquet
from ..differing import LOCK
from ..exporting import ExportedFiles, ListedFile, manifest_path
from ..ledger import Position
from ..names import COMPACTED, KEYS, RAW, Hour, RawName, hour_in, relative, safe_name
from ..parallel import in_parallel
from ..sources import SourceError
from .building import Builder, ReadFile
from .contents import Contents, DamagedError
from .hashes import wanted_texts
from .listing import Keys, list_known
from .making import STEP_BYTES, STEP_FILES
from .opened import OpenKeys
from .spans import hour_of_file, known_files, set_aside

if TYPE_CHECKING:
    from ..differing import Differing
    from ..query import Listing, Query
    from .spans import KnownFile

_EXPORTED: Final = "exported"
"""The folder, in a home or in a user's cache, with a folder for each destination that was asked."""

_NO_LEDGER: Final = Position("", 0, "")
_MANIFESTS: Final = "manifests.json"
_MANIFESTS_AT_ONCE: Final = 16
_READ_FIRST_BYTES: Final = 2**30
"""A question reads so much into the keys before it answers, and opens the rest."""
_FRESH_S: Final = 10.0
"""The questions of one journey list the manifests once."""
_AHEAD: Final = 8
"""So many files are fetched at once, since each takes about as long as a request."""
_TRIES: Final = 3
_FETCHED_MAX: Final = 1_024
"""So many files stay on this machine for further questions: twice as many as are read together."""

Progress = Callable[[], AbstractContextManager[Callable[..., Any]]]
"""Shows how far it is; gives what is called with ``completed`` and ``total`` files."""


def open_exported(where: str, home: Path, progress: Progress | None = None) -> ExportedKeys:
    """What was exported, with its keys in a home; where there is no home, in the user's cache.

    Raises what `ExportedKeys` does.
    """
    if home.is_dir():
        return ExportedKeys(where, home / _EXPORTED, progress=progress)
    import platformdirs

    cache = Path(platformdirs.user_cache_dir("waybill", appauthor=False))
    return ExportedKeys(where, cache / _EXPORTED, progress=progress)


class _Manifest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: str
    files: dict[str, ListedFile]


class ExportedKeys(Keys):
    """Finds and fetches the files at a destination of exports: a `waybill.exporter.query.Access`.

    Args:
        where: the URL or the path that was given to the export.
        cache: the folder with a folder for each destination; it is made.
        progress: shows how far the reading of files is that the keys do not know.
        read_first_bytes: a question reads files of so many bytes into the keys before it answers.
        files: how the cache is written.

    Raises:
        what `ExportedFiles` raises.

    Attributes:
        root: the folder of this destination on this machine, which a question gets as its root. If it cannot
            be made, it is a temporary one.
        name: the URL of the destination, without credentials.
    """

    def __init__(
        self,
        where: str,
        cache: Path,
        *,
        progress: Progress | None = None,
        read_first_bytes: int = _READ_FIRST_BYTES,
        files: Files | None = None,
    ) -> None:
        super().__init__()
        self._progress = progress or (lambda: nullcontext(lambda **_: None))
        self._read_first_bytes = read_first_bytes
        self._exported = ExportedFiles(where)
        self.name = self._exported.name
        self.root = cache / hashlib.sha256(self.name.encode()).hexdigest()[:16]
        self._files = files or Files()
        self._listing_lock = threading.Lock()
        self._listed: dict[str, ListedFile] = {}
        self._listed_s = -_FRESH_S
        self._manifests: dict[str, _Manifest] = {}
        self._raws: list[str] = []
        self._fetching: dict[tuple[str, str], Future[Path]] = {}
        self._fetching_lock = threading.Lock()
        self._fetched = tempfile.TemporaryDirectory(prefix="waybill-exported-")
        self._ahead = ThreadPoolExecutor(_AHEAD, thread_name_prefix="waybill-exported")
        try:
            self._files.make_folder(self.root)
        except OSError:
            self._temporary = tempfile.TemporaryDirectory(prefix="waybill-exported-")
            self.root = Path(self._temporary.name)

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:  # noqa: ARG002
        """List the files that may hold part of an answer, by the manifests and the keys.

        Raises:
            NotFoundError: nothing was exported to this place.
            SourceUnreachableError: the store does not answer.
            SourceError: a manifest is not one.
        """
        with self._listing_lock:
            self._problem = None
            self._refresh()
            system = None if query.system_name is None else safe_name(query.system_name)
            asked = {
                path
                for path in self._listed
                if (system is None or path.split("/")[2] == system) and query.touches(hour_of_file(path))
            }
            opened, unknown = self._known()
            if wanted_texts(query) and (unknown := asked & unknown):
                self._read(unknown)
                opened, unknown = self._known()
            hours = {*map(hour_of_file, unknown & asked), *filter(None, map(hour_in, self._raws))}
            whole = _Listed(self.root, asked, self._raws, self._begin_all)
            self._asked = opened
            try:
                return list_known(opened, query, hours, whole)
            except (OSError, DamagedError) as error:
                if isinstance(error, DamagedError):
                    set_aside(error.path, error)
                nothing = OpenKeys(self.root, Contents(_NO_LEDGER))
                return list_known(nothing, query, {*whole.hours}, whole)

    def place(self, path: Path) -> Path:
        """Where a file that was listed is on this machine, to which it is fetched.

        Raises:
            SourceUnreachableError: the store does not answer.
            DAMAGED: no manifest lists it, or it is gone.
        """
        return self._begin(relative(self.root, path)).result()

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        """The sentence about a file that could not be read, by its URL."""
        place = relative(root, path)
        if path.is_relative_to(root / RAW):
            command = shlex.join(["waybill", "compact", self.name])
            return f"{self.name}/{place} is not compacted yet; run `{command}`"
        return parquet.unreadable(f"{self.name}/{place}", error, root=None)

    def _begin_all(self, paths: Iterable[Path]) -> None:
        for path in paths:
            with contextlib.suppress(parquet.ForeignError):
                self._begin(relative(self.root, path))

    def _begin(self, place: str) -> Future[Path]:
        """Fetch one version of a file, unless that is done already."""
        listed = self._listed.get(place)
        if listed is None:
            raise parquet.ForeignError("no manifest lists it")
        key = (place, listed.sha256)
        with self._fetching_lock:
            known = self._fetching.get(key)
            # What failed may be there now.
            if known is None or (known.done() and known.exception()):
                known = self._fetching[key] = self._ahead.submit(self._fetch, place)
            while len(self._fetching) > _FETCHED_MAX:
                oldest = self._fetching.pop(next(iter(self._fetching)))  # it is not empty
                oldest.add_done_callback(_remove)
        return known

    def _fetch(self, place: str) -> Path:
        content = self._read_listed(place)
        with tempfile.NamedTemporaryFile(dir=self._fetched.name, suffix=".parquet", delete=False) as file:
            file.write(content)
        return Path(file.name)

    def _read_listed(self, place: str) -> bytes:
        """The bytes of a file, which is the listed one or, until its export ends, one with more records."""
        listed: ListedFile | None = self._listed[place]
        manifest = manifest_path(place.split("/")[2], hour_of_file(place).day)
        for _ in range(_TRIES):
            content = self._exported.read(place)
            is_listed = listed is not None and hashlib.sha256(content).hexdigest() == listed.sha256
            if is_listed or (listed is not None and ListedFile.of(content).rows >= listed.rows):
                return content
            listed = self._exported.read_manifest(manifest).get(place)
        raise parquet.ForeignError("it has fewer records than the manifest lists")

    def _refresh(self) -> None:
        """Read the manifests that have changed."""
        if SYSTEM_CLOCK.monotonic_s() < self._listed_s + _FRESH_S:
            return
        before = self._manifests or self._read_before()
        # Raw files come first: what is compacted meanwhile is in a manifest then.
        self._raws = self._exported.raw_files()
        versions = self._exported.manifests()
        if not versions and not self._raws:
            raise NotFoundError(f"nothing was exported to {self.name}; check the URL")
        now = {path: one for path, one in before.items() if versions.get(path) == one.version}
        changed = sorted(versions.keys() - now.keys())
        read = in_parallel(self._exported.read_manifest, changed, workers=_MANIFESTS_AT_ONCE)
        now |= {path: _Manifest(versions[path], files) for path, files in zip(changed, read, strict=True)}
        for path in changed:
            self._check_paths(path, now[path].files)
        if now.keys() != before.keys() or changed:
            with contextlib.suppress(OSError):  # then they are read again for the next question
                publish(self._files, self.root / _MANIFESTS, msgspec.json.encode(now))
        if now != self._manifests:
            self._manifests = now
            self._listed = {path: one for manifest in now.values() for path, one in manifest.files.items()}
        self._listed_s = SYSTEM_CLOCK.monotonic_s()

    def _read_before(self) -> dict[str, _Manifest]:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((self.root / _MANIFESTS).read_bytes(), type=dict[str, _Manifest])
        return {}

    def _check_paths(self, manifest: str, files: Iterable[str]) -> None:
        for path in files:
            if not PurePosixPath(path).is_relative_to(COMPACTED) or hour_in(path) is None:
                what = f"lists {path}, which is no file of the layout; move it away and export again"
                raise SourceError(f"{self.name}/{manifest} {what}")

    def _known(self) -> tuple[OpenKeys, set[str]]:
        """The keys, for which files are gone that are not listed as they were; and the other listed files."""
        opened = None
        with contextlib.suppress(OSError, DamagedError):
            opened = self._current(self.root)
        opened = opened or OpenKeys(self.root, Contents(_NO_LEDGER))
        try:
            files = list(known_files(opened.files))
        except (OSError, DamagedError) as error:
            if isinstance(error, DamagedError):
                set_aside(error.path, error)
            return OpenKeys(self.root, Contents(_NO_LEDGER)), {*self._listed}
        there = {file.number: file.path for file in files if _is_listed(file.path, file.stamp, self._listed)}
        gone = frozenset(file.number for file in files if file.number not in there) | opened.gone
        known = {path for number, path in there.items() if number not in opened.gone}
        return opened.without(gone), self._listed.keys() - known

    def _read(self, paths: Collection[str]) -> None:
        """Read files into the keys, the newest first, as far as the bound allows."""
        wanted: list[str] = []
        size_bytes = 0
        for path in sorted(paths, key=hour_of_file, reverse=True):
            size_bytes += self._listed[path].size_bytes
            if size_bytes > self._read_first_bytes:
                self._problem = (
                    f"{len(paths) - len(wanted):,} of the {len(self._listed):,} files at {self.name} have no "
                    "keys yet; each question makes some, and answers take less time"
                )
                break
            wanted.append(path)
        total = len(wanted)
        try:
            self._files.make_folder(self.root / KEYS)
            with self._progress() as update:
                while wanted:
                    update(completed=total - len(wanted), total=total)
                    with locked(self.root / KEYS / LOCK):
                        wanted = _ExportStep(self.root, self._files, self._listed, self._places).take(wanted)
        except OSError as error:
            why = f"cannot be written ({reason_of(error)}); until it can, answers take longer"
            self._problem = f"{self.root / KEYS} {why}"

    def _places(self, paths: Sequence[str]) -> Iterator[Path | None]:
        """Where files are on this machine; None if they cannot be had."""
        self._begin_all(self.root / path for path in paths)
        for path in paths:
            try:
                yield self.place(self.root / path)
            except parquet.DAMAGED:
                yield None


class _ExportStep(Builder):
    """One step of reading exported files, under the lock of the keys."""

    def __init__(
        self,
        root: Path,
        files: Files,
        listed: Mapping[str, ListedFile],
        places: Callable[[Sequence[str]], Iterator[Path | None]],
    ) -> None:
        super().__init__(root, files)
        self._listed = listed
        self._places = places

    def take(self, wanted: Sequence[str]) -> list[str]:
        """Read some of those files that the keys do not know; returns those that are left."""
        before = self.known()
        contents = before or self.empty(_NO_LEDGER)
        lost = self.lost(contents)
        known: set[str] = set()
        spans = []
        for span in (span for span in contents.spans if span not in lost):
            files = self.files_of(span)
            listed = {file.number for file in files if _is_listed(file.path, file.stamp, self._listed)}
            known.update(file.path for file in files if file.number in listed)
            stale = [file.number for file in files if file.number not in listed]
            spans.append(msgspec.structs.replace(span, gone=(*span.gone, *stale)))
        contents = msgspec.structs.replace(contents, spans=tuple(spans))
        left = [path for path in wanted if path not in known]
        some = self._next(left)
        left = left[len(some) :]
        read = [
            ReadFile(path, place, self._listed[path].sha256, self._listed[path].size_bytes)
            for path, place in zip(some, self._places(some), strict=True)
            if place is not None
        ]
        contents, _ = self.with_span(contents, read, _sha256_of)
        # Their spans are rolled up once the last of them is there.
        waiting = tuple(sorted(set(map(hour_of_file, left)), reverse=True))
        self.published(msgspec.structs.replace(contents, waiting=waiting), before)
        return left

    def _next(self, wanted: Sequence[str]) -> list[str]:
        """The first files, of one month, as many as are enough for a step."""
        found: list[str] = []
        size_bytes = 0
        for path in wanted:
            is_same = hour_of_file(path).day[:6] == hour_of_file(wanted[0]).day[:6]
            if not is_same or len(found) >= STEP_FILES or size_bytes >= STEP_BYTES:
                break
            found.append(path)
            size_bytes += self._listed[path].size_bytes
        return found


class _Listed:
    """The files that manifests list, as if they were below the root.

    Of raw files a question only has to say that they are not compacted yet.
    """

    def __init__(
        self, root: Path, paths: Iterable[str], raws: Iterable[str], begin: Callable[[Iterable[Path]], None]
    ) -> None:
        self._paths: defaultdict[Hour, list[Path]] = defaultdict(list)
        self._raws: defaultdict[Hour, dict[RawName, Path]] = defaultdict(dict)
        self._root = root
        self._begin = begin
        for path in sorted(paths):
            self._paths[hour_of_file(path)].append(root / path)
        for path in raws:
            hour, name = hour_in(path), RawName.parse(path.rpartition("/")[2])
            if hour is not None and name is not None:
                self._raws[hour][name] = root / path

    @property
    def hours(self) -> Iterable[Hour]:
        """The hours that have files."""
        return self._paths.keys() | self._raws.keys()

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        return self._raws.get(hour, {})

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:  # noqa: ARG002 - no rows move
        paths = self._paths.get(hour, [])
        self._begin(paths)
        return paths

    def known(self, files: Iterable[KnownFile]) -> list[Path]:
        paths = [self._root / one.path for one in files]
        self._begin(paths)
        return paths

    def differing(self) -> Sequence[Differing]:
        """None: a file that is not the listed one cannot be read."""
        return ()


def _remove(fetched: Future[Path]) -> None:
    if fetched.exception() is None:
        fetched.result().unlink(missing_ok=True)


def _is_listed(path: str, stamp: str, listed: Mapping[str, ListedFile]) -> bool:
    """Whether a file is listed as the keys have it."""
    one = listed.get(path)
    return one is not None and one.sha256 == stamp


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
