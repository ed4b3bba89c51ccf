"""Listing the files that may hold part of an answer, by the catalog instead of the folders.

The catalog knows what the files had up to an entry of the ledger. The hours that later entries name are
listed from their folders, and so are the hours with raw files, with records that are in no file yet, and with
files that the catalog could not read. There, every file is read. In all other hours, only the files are read
that have the texts which the query asks for.

The raw hours are listed before the ledger is read. A record that a compaction moves out of a raw file in
between is in an hour that the ledger names by then, because an entry is begun before its files change.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import threading
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter.directory import FileStamp, compacted_in, raw_files, raw_hours
from waybill.exporter.hour_files import HourFiles
from waybill.exporter.ledger import follow_ledger
from waybill.exporter.names import CATALOG, Hour, RawName, safe_name
from waybill.exporter.parquet import TimeWindow, unreadable
from waybill.exporter.quarantine import list_quarantined
from waybill.exporter.query import FOLDERS
from waybill.transport.errors import reason_of

from .contents import CONTENTS, CataloguedFile, Contents, Segment, SegmentFiles, read_contents, read_files
from .keys import wanted_hashes
from .kinds import SegmentSums, numbers_of
from .runs import Run
from .sealing import DamagedError, set_aside

if TYPE_CHECKING:
    from waybill.exporter import Query
    from waybill.exporter.query import Dimension, Listing

_TRIES: Final = 3
_LISTED_ONE_BY_ONE: Final = 50
"""For more hours than this, listing all folders once takes less time than looking into all for each hour."""


class Catalog:
    """The catalog of a root, to read only; one object serves many questions about one root, from any thread.

    Without a catalog, or with one that cannot be used, every file is listed from the folders.

    Attributes:
        problem: why answers take longer now, in a sentence; None if they do not.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._opened: OpenCatalog | None = None

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:
        """List the files that may hold part of an answer: see `waybill.exporter.query.Access`.

        Raises:
            OSError: a folder cannot be read.
        """
        for _ in range(_TRIES):
            try:
                opened = self._current(root)
                if opened is None:
                    break
                listed = _listed(opened, query, unfiled)
                self.problem = opened.problem
                return listed or FOLDERS.list_files(root, query, unfiled)
            except FileNotFoundError:
                continue  # It was replaced in this moment.
            except OSError as error:
                # If it is the root that cannot be read, listing all files says so.
                self.problem = (
                    f"{root / CATALOG} cannot be read ({reason_of(error)}); until it can, answers take longer"
                )
                break
            except DamagedError as error:
                set_aside(error)
                self.problem = str(error)
                break
        else:
            self.problem = _lacking(root)
        return FOLDERS.list_files(root, query, unfiled)

    def place(self, path: Path) -> Path:
        """Where a file that was listed is on this machine: see `waybill.exporter.query.Access`."""
        return path

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        """The sentence about a file that could not be read: see `waybill.exporter.query.Access`."""
        return unreadable(path, error, root=root)

    def _current(self, root: Path) -> OpenCatalog | None:
        """The catalog as it is now; None if there is none."""
        with self._lock:
            opened = self._opened
            try:
                stamp = FileStamp.of((root / CONTENTS).stat())
            except FileNotFoundError:
                return None
            if opened is None or opened.root != root or opened.stamp != stamp:
                contents = read_contents(root)
                before = opened if opened is not None and opened.root == root else None
                opened = None if contents is None else OpenCatalog(root, stamp, contents, before)
                self._opened = opened
            return opened


class OpenSegment:
    """An open segment."""

    def __init__(self, root: Path, segment: Segment) -> None:
        self.segment = segment
        self._root = root

    @functools.cached_property
    def files(self) -> dict[int, CataloguedFile]:
        """Its files by number, in order of their places."""
        return {file.number: file for file in self.stored.files}

    @functools.cached_property
    def by_hour(self) -> dict[Hour, list[tuple[int, CataloguedFile]]]:
        """Its files by hour, each after its place."""
        found: defaultdict[Hour, list[tuple[int, CataloguedFile]]] = defaultdict(list)
        for place, file in enumerate(self.stored.files):
            found[file.hour].append((place, file))
        return dict(found)

    def counted(
        self, query: Query, by: Collection[Dimension], gone: frozenset[int], unknown: set[Hour]
    ) -> tuple[pa.Table, list[CataloguedFile]]:
        """The sums of records that answer a query by kinds, and the other files that may have such records.

        Files that are gone, by number, and those of unknown hours are in neither.
        """
        window = query.window
        if (
            self._is_summed
            and window.since_ms <= self._window.since_ms
            and self._window.until_ms <= window.until_ms
            and gone.isdisjoint(self.files)
            and unknown.isdisjoint(self.by_hour)
        ):
            return self.sums.counted(query, by), []
        is_counted, straddling = self._within(window)
        excluded = {place for hour in unknown for place, _ in self.by_hour.get(hour, ())}
        if not gone.isdisjoint(self.files):
            excluded.update(place for place, number in enumerate(self.files) if number in gone)
        for place in excluded:
            is_counted[place] = 0
        left = [self.stored.files[place] for place in straddling if place not in excluded]
        return self.sums.counted(query, by, bytes(is_counted)), left

    @functools.cached_property
    def sums(self) -> SegmentSums:
        """How many records of which kind its files have."""
        return SegmentSums(self.stored.sums, [file.hour.start_ms for file in self.stored.files])

    @functools.cached_property
    def _window(self) -> TimeWindow:
        """The span of `completed` of its records."""
        files = self.stored.files
        return TimeWindow(min(one.first_ms for one in files), max(one.last_ms for one in files) + 1)

    @functools.cached_property
    def _is_summed(self) -> bool:
        """Whether it has the sums of all its files."""
        return all(file.is_summed for file in self.stored.files)

    def _within(self, window: TimeWindow) -> tuple[bytearray, list[int]]:
        """For each file, 1 if it is summed and all in a window, else 0; and the others that touch it."""
        first_ms, last_ms, is_summed = self._bounds
        inside = pc.and_(pc.greater_equal(first_ms, window.since_ms), pc.less(last_ms, window.until_ms))
        inside = pc.and_(inside, is_summed)
        touches = pc.and_(pc.less(first_ms, window.until_ms), pc.greater_equal(last_ms, window.since_ms))
        straddling = pc.indices_nonzero(pc.and_not(touches, inside)).to_pylist()
        return bytearray(inside.cast(pa.int8()).buffers()[1])[: len(inside)], straddling

    @functools.cached_property
    def _bounds(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        files = self.stored.files
        return (
            numbers_of(pa.int64(), array("q", [file.first_ms for file in files])),
            numbers_of(pa.int64(), array("q", [file.last_ms for file in files])),
            numbers_of(pa.int8(), bytes(file.is_summed for file in files)).cast(pa.bool_()),
        )

    @functools.cached_property
    def stored(self) -> SegmentFiles:
        """Its files as they are on disk."""
        return read_files(self._root, self.segment)

    @functools.cached_property
    def run(self) -> Run:
        """Its keys."""
        return Run(self._root / CATALOG / self.segment.keys_name)


class OpenCatalog:
    """The catalog as some contents have it; segments that it shares with those before stay open."""

    def __init__(self, root: Path, stamp: FileStamp, contents: Contents, before: OpenCatalog | None) -> None:
        known = {} if before is None else {part.segment: part for part in before.parts}
        self.root = root
        self.stamp = stamp
        self.contents = contents
        self.gone = frozenset(contents.gone)
        self.parts: list[OpenSegment] = [
            known.get(one) or OpenSegment(root, one) for one in contents.segments
        ]
        self.problem: str | None = None
        self._unusable: set[int] = set()

    def unknown_hours(self) -> set[Hour]:
        """The hours of which it does not know all."""
        contents = self.contents
        return {*contents.waiting, *contents.unread, *contents.doubled}

    @functools.cached_property
    def hours(self) -> list[Hour]:
        """All hours that it has files of, in order."""
        return sorted({hour for part in self.parts for hour in part.by_hour})

    def candidates(self, query: Query, hashes: list[list[int]]) -> tuple[Iterator[CataloguedFile], set[Hour]]:
        """The files that have the texts with some hashes, and the hours that turn out to be unknown."""
        found: list[CataloguedFile] = []
        unknown: set[Hour] = set()
        for part in self.parts:
            try:
                numbers = None if part.segment.serial in self._unusable else _numbers(part, hashes)
            except DamagedError as error:
                set_aside(error)
                numbers = None
                self._unusable.add(part.segment.serial)
                self.problem = str(error)
            except FileNotFoundError:
                if not _is_current(self.root, self.stamp):
                    raise
                numbers = None  # Somebody has set it aside.
                self._unusable.add(part.segment.serial)
                self.problem = _lacking(self.root)
            if numbers is None:
                unknown.update(file.hour for file in part.files.values())
            else:
                found += [part.files[number] for number in numbers]
        return (file for file in found if self.is_asked_for(file, query)), unknown

    def is_asked_for(self, file: CataloguedFile, query: Query) -> bool:
        """Whether a file is there and has records of the query's system and window."""
        window, system = query.window, query.system_name
        return (
            file.first_ms < window.until_ms
            and file.last_ms >= window.since_ms
            and file.number not in self.gone
            and (system is None or file.system == safe_name(system))
        )


def _lacking(root: Path) -> str:
    return f"{root / CATALOG} lacks a file; until it is made again, answers take longer"


def _is_current(root: Path, stamp: FileStamp) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return FileStamp.of((root / CONTENTS).stat()) == stamp
    return False


def _numbers(part: OpenSegment, hashes: list[list[int]]) -> set[int]:
    """The numbers of a segment's files that have one text of each list."""
    found: set[int] | None = None
    for some in hashes:
        of_these = {number for hashed in some for number in part.run.numbers(hashed)}
        found = of_these if found is None else found & of_these
        if not found:
            break
    return found or set()


def _listed(opened: OpenCatalog, query: Query, unfiled: Collection[Hour]) -> Listing | None:
    """The files by the catalog; None if the ledger does not go on from where the catalog ends."""
    root = opened.root
    unknown = {*unfiled, *raw_hours(root), *opened.unknown_hours()}
    # `Unread.add_quarantined` reports an unreadable report.
    with contextlib.suppress(OSError):
        unknown.update(one.hour for one in list_quarantined(root) if one.restored_ms is None)
    followed = follow_ledger(root, opened.contents.position)
    if followed is None:
        return None
    unknown |= followed.hours
    hashes = wanted_hashes(query)
    if not hashes:
        return _KindFiles(opened, query, unknown, opened.hours)
    files, more = opened.candidates(query, hashes)
    unknown |= more
    return _SomeFiles(root, query, unknown, (file for file in files if file.hour not in unknown))


class _Files(abc.ABC):
    """The files of known hours, and all files of the others: a `Listing`."""

    def __init__(self, root: Path, query: Query, unknown: set[Hour], known: Sequence[Hour]) -> None:
        self.root = root
        self.query = query
        self.unknown = unknown
        # Of years, few hours are unknown.
        more = [hour for hour in unknown if known[bisect_left(known, hour) :][:1] != [hour]]
        self.hours: Sequence[Hour] = sorted([*known, *more]) if more else known
        is_far = len(unknown) > _LISTED_ONE_BY_ONE
        self._all = HourFiles(root, query.system_name) if is_far else None

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        # Raw files that have come since have only records that were accepted after the question.
        return raw_files(self.root, hour) if hour in self.unknown else {}

    def counted(self, query: Query, by: Collection[Dimension]) -> tuple[pa.Table | None, Listing]:  # noqa: ARG002
        return None, self

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:
        if hour not in self.unknown:
            return self.known(hour)
        if self._all is not None:
            return self._all.compacted(hour, raws)
        return compacted_in(self.root, hour, self.query.system_name)

    @abc.abstractmethod
    def known(self, hour: Hour) -> list[Path]:
        """The files of a known hour that may hold part of the answer."""


class _SomeFiles(_Files):
    """Of the known hours, these files."""

    def __init__(self, root: Path, query: Query, unknown: set[Hour], files: Iterable[CataloguedFile]) -> None:
        self._known: defaultdict[Hour, list[Path]] = defaultdict(list)
        for file in files:
            self._known[file.hour].append(root / file.path)
        super().__init__(root, query, unknown, sorted(self._known))

    def known(self, hour: Hour) -> list[Path]:
        return self._known.get(hour, [])


class _KindFiles(_Files):
    """Of the known hours, the files with records of a kind that is asked for.

    They are looked for when an hour is asked for: a question without bounds may end in the first one.
    """

    def __init__(self, opened: OpenCatalog, query: Query, unknown: set[Hour], hours: Sequence[Hour]) -> None:
        super().__init__(opened.root, query, unknown, hours)
        self._opened = opened
        self._with_kind: dict[int, frozenset[int] | None] = {}

    def known(self, hour: Hour) -> list[Path]:
        found = []
        for part in self._opened.parts:
            if not part.segment.first <= hour <= part.segment.last:
                continue
            serial = part.segment.serial
            if serial not in self._with_kind:
                self._with_kind[serial] = part.sums.files_with(self.query)
            places = self._with_kind[serial]
            found += [
                self.root / file.path
                for place, file in part.by_hour.get(hour, ())
                if (places is None or place in places or not file.is_summed)
                and self._opened.is_asked_for(file, self.query)
            ]
        return found

    def counted(self, query: Query, by: Collection[Dimension]) -> tuple[pa.Table | None, Listing]:
        if not query.is_by_kind:
            return None, self
        tables: list[pa.Table] = []
        left: list[CataloguedFile] = []
        for part in self._opened.parts:
            sums, others = part.counted(query, by, self._opened.gone, self.unknown)
            tables.append(sums)
            left += [file for file in others if self._opened.is_asked_for(file, query)]
        files = _SomeFiles(self.root, query, self.unknown, left)
        return pa.concat_tables(tables) if tables else None, files
