"""Asking what was exported: the files that the manifests of a destination list, by a catalog on this machine.

    manifests                                  what the manifests list, each as it was when it was read
    provenance/catalog/…                       the catalog: see `contents`

The catalog is not exported with the files. Several roots, rebuilds and compactions write to a destination at
once and merge each other's files, and some of them have done so before there were catalogs; to keep common
keys there, each would have to replace what the others wrote, and a reader would have to fetch all keys for a
single look-up. Made by those who ask, it needs no right to write there, and it cannot differ from the files:
a file is known by its path and the SHA-256 that the manifest gives. So each file is read once here.

A question lists the manifests, which takes one request for a thousand of them, and fetches those that have
changed. If the files that it does not know are small, it reads them into the catalog first. Otherwise it
opens them, as if there were no catalog. While it reads a file, the next ones are being opened. A
question by kind reads nothing first: it opens the files that the catalog does not have, and of the others
those with such records, or none to count them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import shlex
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from waybill.exporter import SourceError, parquet
from waybill.exporter.directory import FileStamp
from waybill.exporter.exporting import ExportedFiles, ListedFile
from waybill.exporter.ledger import Position
from waybill.exporter.names import CATALOG, COMPACTED, RAW, Hour, RawName, hour_in, relative, safe_name
from waybill.exporter.parallel import in_parallel
from waybill.transport.errors import NotFoundError, reason_of
from waybill.transport.files import Files, publish
from waybill.transport.locks import locked

from .contents import CataloguedFile, Contents, read_contents
from .keys import in_order, wanted_hashes
from .listing import Catalog
from .making import LOCK, STEP_FILES, STEP_KEYS, CatalogReport, Catalogued, Step, catalogued, report_of
from .sealing import DamagedError, sealed, set_aside, unsealed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from waybill.exporter import Query
    from waybill.exporter.query import Dimension, Listing

    from .kinds import Kind, Sum
    from .listing import OpenCatalog
    from .making import OnProgress

_EXPORTED: Final = "exported"
"""The folder, in a home or in a user's cache, with a folder for each destination that was asked."""

_NO_LEDGER: Final = Position("", 0, "")
_MANIFESTS: Final = "manifests"
_MANIFESTS_AT_ONCE: Final = 16
_FILES_AT_ONCE: Final = 8
_BATCH: Final = 4 * _FILES_AT_ONCE
_READ_FIRST_BYTES: Final = 2**25
"""A question reads so much into the catalog before it answers: about a second's work."""
_FRESH_S: Final = 10.0
"""The questions of one journey list the manifests once."""
_AHEAD: Final = 8
"""So many files are fetched at once, since each takes about as long as a request."""
_FETCHED_MAX: Final = 512
"""So many files stay on this machine for further questions: twice as many as one question reads together."""


def open_exported(where: str, home: Path) -> ExportedCatalog:
    """What was exported, with its catalog in a home; where there is no home, in the user's cache.

    Raises what `ExportedCatalog` does.
    """
    if home.is_dir():
        return ExportedCatalog(where, home / _EXPORTED)
    import platformdirs

    return ExportedCatalog(where, Path(platformdirs.user_cache_dir("waybill", appauthor=False)) / _EXPORTED)


class _Manifest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: str
    files: dict[str, ListedFile]


class ExportedCatalog(Catalog):
    """Finds and opens the files at a destination of exports: a `waybill.exporter.query.Access`.

    Args:
        where: the URL or the path that was given to the export.
        cache: the folder with a folder for each destination; it is made.
        read_first_bytes: a question reads files of so many bytes into the catalog before it answers.
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
        read_first_bytes: int = _READ_FIRST_BYTES,
        files: Files | None = None,
    ) -> None:
        super().__init__()
        self._read_first_bytes = read_first_bytes
        self._exported = ExportedFiles(where)
        self.name = self._exported.name
        self.root = cache / hashlib.sha256(self.name.encode()).hexdigest()[:16]
        self._files_of_cache = files or Files()
        self._listing_lock = threading.Lock()
        self._listed: dict[str, ListedFile] = {}
        self._listed_s = -_FRESH_S
        self._manifests: dict[str, _Manifest] = {}
        self._known_before: _Known | None = None
        self._raws: list[str] = []
        self._paths: list[Path] = []
        self._places: dict[Path, int] = {}
        self._fetching: dict[tuple[str, str], Future[Path]] = {}
        self._fetching_lock = threading.Lock()
        self._fetched = tempfile.TemporaryDirectory(prefix="waybill-exported-")
        self._ahead = ThreadPoolExecutor(_AHEAD, thread_name_prefix="waybill-exported")
        try:
            self._files_of_cache.make_folder(self.root)
        except OSError:
            self._temporary = tempfile.TemporaryDirectory(prefix="waybill-exported-")
            self.root = Path(self._temporary.name)

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:  # noqa: ARG002
        """List the files that may hold part of an answer, by the manifests and the catalog.

        Raises:
            NotFoundError: nothing was exported to this place.
            SourceUnreachableError: the store does not answer.
            SourceError: a manifest is not one.
        """
        with self._listing_lock:
            return self._list(query)

    def _list(self, query: Query) -> Listing:
        self.problem = None
        self._refresh()
        system = None if query.system_name is None else safe_name(query.system_name)
        asked = {
            path: one
            for path, one in self._listed.items()
            if path.split("/")[2] == system or system is None
            if query.touches(_hour_of(path))
        }
        if not wanted_hashes(query):
            known = self._known()
            without = set[str]() if known is None else known.without_kind(query)
            return self._listing(asked.keys() - without, query, known)
        unknown, found = self._look_up(asked, query)
        if unknown and sum(asked[path].size_bytes for path in unknown) <= self._read_first_bytes:
            try:
                self._keep(unknown)
            except OSError as error:
                why = f"cannot be written ({reason_of(error)}); until it can, answers take longer"
                self.problem = f"{self.root / CATALOG} {why}"
            unknown, found = self._look_up(asked, query)
        elif unknown:
            self.problem = (
                f"{len(unknown):,} of the {len(asked):,} files at {self.name} are not in the catalog yet; "
                f"run `{self._command('catalog')}`, and answers take less time"
            )
        return self._listing(asked.keys() & {*unknown, *found}, query)

    def place(self, path: Path) -> Path:
        """Where a file that was listed is on this machine, to which it is fetched.

        Raises:
            SourceUnreachableError: the store does not answer.
            DAMAGED: no manifest lists it, or it is gone.
        """
        at = self._places.get(path, 0)  # 0 too if another question was asked since
        # Many questions need one file only.
        following = self._paths[at + 1 : at + _AHEAD] if at else []
        with self._fetching_lock:
            fetching = self._begin(relative(self.root, path))
            for one in following:
                self._begin(relative(self.root, one))
            while len(self._fetching) > _FETCHED_MAX:
                oldest = self._fetching.pop(next(iter(self._fetching)))
                oldest.add_done_callback(_remove)
        return fetching.result()

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        """The sentence about a file that could not be read, by its URL."""
        place = relative(root, path)
        if path.is_relative_to(root / RAW):
            return f"{self.name}/{place} is not compacted yet; run `{self._command('compact')}`"
        return parquet.unreadable(f"{self.name}/{place}", error, root=None)

    def keep(self, on_progress: OnProgress | None = None) -> CatalogReport:
        """Read every file that the catalog does not know; `on_progress` gets the files read, and their total.

        Raises:
            OSError: the catalog cannot be written.
            NotFoundError, SourceError: see `list_files`.
        """
        with self._listing_lock:
            self._refresh()
            return self._keep(self._listed, on_progress)

    def _begin(self, place: str) -> Future[Path]:
        """Fetch one version of a file, unless that is done already."""
        listed = self._listed.get(place)
        if listed is None:
            raise parquet.ForeignError("no manifest lists it")
        key = (place, listed.sha256)
        if key not in self._fetching:
            self._fetching[key] = self._ahead.submit(self._fetch, place)
        return self._fetching[key]

    def _fetch(self, place: str) -> Path:
        content = self._exported.read(place)
        with tempfile.NamedTemporaryFile(dir=self._fetched.name, suffix=".parquet", delete=False) as file:
            file.write(content)
        return Path(file.name)

    def _listing(self, paths: Collection[str], query: Query, known: _Known | None = None) -> Listing:
        """The listing of a question; what it opens next is what comes next in its order."""
        count = None
        if known is not None and query.is_by_kind:
            count = functools.partial(self._counted, known, paths)
        found = _ExportedListing(self.root, paths, self._raws, count)
        hours = sorted(found.hours, reverse=not query.oldest_first)
        with self._fetching_lock:
            # What failed may be there now.
            failed = [key for key, one in self._fetching.items() if one.done() and one.exception()]
            for key in failed:
                del self._fetching[key]
            self._paths = [path for hour in hours for path in found.compacted(hour, ())]
            self._places = {path: at for at, path in enumerate(self._paths)}
        return found

    def _counted(
        self, known: _Known, paths: Iterable[str], query: Query, by: Collection[Dimension]
    ) -> tuple[pa.Table | None, Listing]:
        """The sums of records that need not be read, and the listing of the other files."""
        sums, counted = known.counted(query, by)
        return sums, self._listing([path for path in paths if path not in counted], query)

    def _refresh(self) -> None:
        """Read the manifests that have changed."""
        if time.monotonic() < self._listed_s + _FRESH_S:
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
                publish(self._files_of_cache, self.root / _MANIFESTS, sealed(now))
        if now != self._manifests:
            self._manifests = now
            self._listed = {path: one for manifest in now.values() for path, one in manifest.files.items()}
        self._listed_s = time.monotonic()

    def _read_before(self) -> dict[str, _Manifest]:
        try:
            return unsealed(self.root / _MANIFESTS, dict[str, _Manifest])
        except OSError:
            return {}
        except DamagedError as error:
            set_aside(error)
            return {}

    def _check_paths(self, manifest: str, files: Iterable[str]) -> None:
        for path in files:
            if not PurePosixPath(path).is_relative_to(COMPACTED) or hour_in(path) is None:
                what = f"lists {path}, which is no file of the layout; move it away and export again"
                raise SourceError(f"{self.name}/{manifest} {what}")

    def _known(self) -> _Known | None:
        """What the catalog has of the files that are listed; None if it cannot be used."""
        try:
            opened = self._current(self.root)
            if opened is None:
                return None
            known = self._known_before
            if known is None or known.opened is not opened or known.listed is not self._listed:
                self._known_before = known = _Known(opened, self._listed)
        except OSError:
            return None  # It cannot be read, or somebody has set a file aside in this moment.
        except DamagedError as error:
            set_aside(error)
            return None
        return known

    def _look_up(self, asked: Collection[str], query: Query) -> tuple[list[str], set[str]]:
        """The files of which the catalog knows nothing, and those that may hold part of an answer."""
        known = self._known()
        if known is None:
            return list(asked), set()
        try:
            found, unknown = known.opened.candidates(query, wanted_hashes(query))
            may = {file.path for file in found}
        except OSError:
            return list(asked), set()
        except DamagedError as error:
            set_aside(error)
            return list(asked), set()
        # Of a segment whose keys are damaged, nothing is known.
        return [path for path in asked if path not in known.paths or _hour_of(path) in unknown], may

    def _command(self, word: str) -> str:
        return shlex.join(["waybill", word, self.name])

    def _keep(self, wanted: Collection[str], on_progress: OnProgress | None = None) -> CatalogReport:
        """Read files into the catalog, the newest first."""
        left = sorted(wanted, key=_hour_of, reverse=True)
        unread: set[Hour] = set()
        folder = self.root / CATALOG
        self._files_of_cache.make_folder(folder)
        while True:
            with locked(folder / LOCK):
                step = _ExportStep(self.root, self._files_of_cache, self._exported, self._listed)
                contents, left = step.take(left, unread)
            if on_progress is not None:
                on_progress(len(wanted) - len(left), len(wanted))
            if not left:
                report = report_of(self.root, contents)
                return msgspec.structs.replace(
                    report, unread=tuple(f"{hour.day}/{hour.hour}" for hour in sorted(unread))
                )


class _ExportStep(Step):
    """One step of reading exported files, under the catalog's lock."""

    def __init__(
        self, root: Path, files: Files, exported: ExportedFiles, listed: Mapping[str, ListedFile]
    ) -> None:
        super().__init__(root, files, STEP_KEYS)
        self._exported = exported
        self._listed = listed

    def take(self, wanted: Sequence[str], unread: set[Hour]) -> tuple[Contents, list[str]]:
        """Read those files that the catalog does not know, until there are keys enough for a step.

        Also returns those that are left. The hours of files that cannot be read are added to `unread`.
        """
        before = self._contents()
        # Which hours wait is told by the manifests.
        contents = msgspec.structs.replace(
            self._without_damaged(before or self._empty(_NO_LEDGER)), waiting=()
        )
        there = [file for one in contents.segments for file in self._files_of(one).files]
        stale = {file.number for file in there if not self._is_listed(file)}
        contents = msgspec.structs.replace(contents, gone=tuple(sorted({*contents.gone, *stale})))
        known = {file.path for file in there if file.number not in contents.gone}
        left = [path for path in wanted if path not in known]
        read: list[CataloguedFile] = []
        sums: list[Mapping[Kind, Sum]] = []
        keys: list[pa.UInt64Array] = []
        number = contents.number
        while left and sum(map(len, keys)) < self._step_keys and len(read) < STEP_FILES:
            some, left = left[:_BATCH], left[_BATCH:]
            numbered = list(enumerate(some, number))
            number += len(some)
            for path, found in zip(
                some, in_parallel(self._read_one, numbered, workers=_FILES_AT_ONCE), strict=True
            ):
                if found is None:
                    unread.add(_hour_of(path))  # Questions open it, and say what is wrong with it.
                    continue
                file, counted, of_file = found
                read.append(file)
                sums.append(counted)
                keys.append(of_file)
        if read:
            contents = msgspec.structs.replace(contents, number=number)
            contents = self._with_segment(contents, read, sums, in_order(keys))
        return self._published(contents, before), left

    def _contents(self) -> Contents | None:
        with contextlib.suppress(DamagedError):
            return read_contents(self._root)
        return None

    def _is_listed(self, file: CataloguedFile) -> bool:
        return _is_listed(file, self._listed)

    def _read_one(self, numbered: tuple[int, str]) -> Catalogued | None:
        number, path = numbered
        listed = self._listed[path]
        try:
            return catalogued(self._exported.open(path, listed), path, number, _stamp_of(listed))
        except parquet.DAMAGED:
            return None


class _Known:
    """What the catalog has of the files that are listed. Raises `DamagedError` and `OSError`.

    Attributes:
        opened: the catalog.
        listed: the files that are listed.
        paths: those of them that the catalog has as they are listed.
    """

    def __init__(self, opened: OpenCatalog, listed: Mapping[str, ListedFile]) -> None:
        self.opened = opened
        self.listed = listed
        files = [file for part in opened.parts for file in part.files.values()]
        there = [file for file in files if file.number not in opened.gone and _is_listed(file, listed)]
        self.paths = frozenset(file.path for file in there)
        self._gone = frozenset(file.number for file in files) - {file.number for file in there}

    def without_kind(self, query: Query) -> set[str]:
        """The files that have no record of a kind that is asked for."""
        found: set[str] = set()
        for part in self.opened.parts:
            places = part.sums.files_with(query)
            if places is not None:
                found |= {
                    file.path
                    for place, (number, file) in enumerate(part.files.items())
                    if place not in places and file.is_summed and number not in self._gone
                }
        return found

    def counted(self, query: Query, by: Collection[Dimension]) -> tuple[pa.Table | None, set[str]]:
        """The sums of records that answer a query by kinds, and the files whose records they are of."""
        tables: list[pa.Table] = []
        counted = set(self.paths)
        for part in self.opened.parts:
            sums, others = part.counted(query, by, self._gone, set())
            tables.append(sums)
            counted.difference_update(file.path for file in others)
        return pa.concat_tables(tables) if tables else None, counted


class _ExportedListing:
    """Files that a question has to read, as if they were below the root.

    Of raw files it only has to say that they are not compacted yet.
    """

    def __init__(
        self,
        root: Path,
        paths: Iterable[str],
        raws: Iterable[str],
        count: Callable[[Query, Collection[Dimension]], tuple[pa.Table | None, Listing]] | None,
    ) -> None:
        self._count = count
        self._paths: defaultdict[Hour, list[Path]] = defaultdict(list)
        self._raws: defaultdict[Hour, dict[RawName, Path]] = defaultdict(dict)
        for path in sorted(paths):
            self._paths[_hour_of(path)].append(root / path)
        for path in raws:
            hour, name = hour_in(path), RawName.parse(path.rpartition("/")[2])
            if hour is not None and name is not None:
                self._raws[hour][name] = root / path

    @property
    def hours(self) -> list[Hour]:
        return sorted(self._paths.keys() | self._raws.keys())

    def counted(self, query: Query, by: Collection[Dimension]) -> tuple[pa.Table | None, Listing]:
        return (None, self) if self._count is None else self._count(query, by)

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        return self._raws.get(hour, {})

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:  # noqa: ARG002 - no rows move
        return self._paths.get(hour, [])


def _remove(fetched: Future[Path]) -> None:
    if fetched.exception() is None:
        fetched.result().unlink(missing_ok=True)


def _is_listed(file: CataloguedFile, listed: Mapping[str, ListedFile]) -> bool:
    """Whether a file is listed as the catalog has it."""
    one = listed.get(file.path)
    return one is not None and _stamp_of(one) == file.stamp


def _stamp_of(one: ListedFile) -> FileStamp:
    """A version of a file at a destination, which has no inode: by 60 bits of its hash instead."""
    return FileStamp(int(one.sha256[:15], 16), 0, one.size_bytes)


def _hour_of(path: str) -> Hour:
    *_, day, name = path.split("/")
    return Hour(day, name[:2])
