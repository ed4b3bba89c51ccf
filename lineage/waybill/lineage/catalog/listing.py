"""Listing the files that may hold part of an answer, by the catalog instead of the folders.

The catalog knows what the files had up to an entry of the ledger. The hours that later entries name are
listed from their folders, and so are the hours with raw files, with records that are in no file yet, and with
files that the catalog could not read. There, every file is read. In all other hours, only the files are read
that have the texts which the query asks for.

The raw hours are listed before the ledger is read. A record that a compaction moves out of a raw file in
between is in an hour that the ledger names by then, because an entry is begun before its files change.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.exporter.directory import FileStamp, compacted_in, raw_files, raw_hours
from waybill.exporter.hour_files import HourFiles
from waybill.exporter.ledger import follow_ledger
from waybill.exporter.names import CATALOG, Hour, RawName, safe_name
from waybill.exporter.parquet import KeptFiles, unreadable
from waybill.exporter.quarantine import list_quarantined
from waybill.exporter.query import FOLDERS
from waybill.lineage.catalog.contents import (
    CONTENTS,
    CataloguedFile,
    Contents,
    Segment,
    read_contents,
    read_files,
)
from waybill.lineage.catalog.keys import wanted_hashes
from waybill.lineage.catalog.runs import Run
from waybill.lineage.catalog.sealing import DamagedError, set_aside
from waybill.transport.errors import reason_of

if TYPE_CHECKING:
    from waybill.exporter import Query
    from waybill.exporter.hour_files import Listing
    from waybill.exporter.parquet import Selectable

_TRIES: Final = 3
_LISTED_ONE_BY_ONE: Final = 50
"""For more hours than this, listing all folders once takes less time than looking into all for each hour."""


class Catalog:
    """The catalog of a root, to read only; one object serves many questions about one root, from any thread.

    Without a catalog, or with one that cannot be used, every file is listed from the folders.

    Args:
        kept_bytes: how much memory rows may take that are kept for further questions.

    Attributes:
        problem: why answers take longer now, in a sentence; None if they do not.
    """

    def __init__(self, *, kept_bytes: int = 0) -> None:
        self.problem: str | None = None
        self._files = KeptFiles(kept_bytes)
        self._lock = threading.Lock()
        self._opened: _Opened | None = None

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

    def open_file(self, path: Path) -> Selectable:
        """Open a file that was listed; raises what `waybill.exporter.parquet.open_selectable` does."""
        return self._files.open(path)

    def unreadable(self, path: Path, error: Exception, root: Path) -> str:
        """The sentence about a file that could not be read: see `waybill.exporter.query.Access`."""
        return unreadable(path, error, root=root)

    def _current(self, root: Path) -> _Opened | None:
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
                opened = None if contents is None else _Opened(root, stamp, contents, before)
                self._opened = opened
            return opened


class _Part:
    """An open segment."""

    def __init__(self, root: Path, segment: Segment) -> None:
        self.segment = segment
        self._root = root

    @functools.cached_property
    def files(self) -> dict[int, CataloguedFile]:
        """Its files by number."""
        return {file.number: file for file in read_files(self._root, self.segment)}

    @functools.cached_property
    def run(self) -> Run:
        """Its keys."""
        return Run(self._root / CATALOG / self.segment.keys_name)


class _Opened:
    """The catalog as some contents have it; segments that it shares with those before stay open."""

    def __init__(self, root: Path, stamp: FileStamp, contents: Contents, before: _Opened | None) -> None:
        known = {} if before is None else {part.segment: part for part in before.parts}
        self.root = root
        self.stamp = stamp
        self.contents = contents
        self.gone = frozenset(contents.gone)
        self.parts: list[_Part] = [known.get(one) or _Part(root, one) for one in contents.segments]
        self.problem: str | None = None
        self._unusable: set[int] = set()

    def unknown_hours(self) -> set[Hour]:
        """The hours of which it does not know all."""
        contents = self.contents
        return {*contents.waiting, *contents.unread, *contents.doubled}

    def candidates(self, query: Query) -> tuple[Iterator[CataloguedFile], set[Hour]]:
        """The files that may hold part of the answer, and the hours that turn out to be unknown."""
        hashes = wanted_hashes(query)
        found: list[CataloguedFile] = []
        unknown: set[Hour] = set()
        for part in self.parts:
            if not hashes:
                found += part.files.values()
                continue
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
        system = None if query.system_name is None else safe_name(query.system_name)
        return (
            file
            for file in found
            if file.number not in self.gone and (system is None or file.system == system)
        ), unknown


def _lacking(root: Path) -> str:
    return f"{root / CATALOG} lacks a file; until it is made again, answers take longer"


def _is_current(root: Path, stamp: FileStamp) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return FileStamp.of((root / CONTENTS).stat()) == stamp
    return False


def _numbers(part: _Part, hashes: list[list[int]]) -> set[int]:
    """The numbers of a segment's files that have one text of each list."""
    found: set[int] | None = None
    for some in hashes:
        of_these = {number for hashed in some for number in part.run.numbers(hashed)}
        found = of_these if found is None else found & of_these
        if not found:
            break
    return found or set()


def _listed(opened: _Opened, query: Query, unfiled: Collection[Hour]) -> Listing | None:
    """The files by the catalog; None if the ledger does not go on from where the catalog ends."""
    root = opened.root
    unknown = {*unfiled, *raw_hours(root), *opened.unknown_hours()}
    # `Unread.add_quarantined` reports an unreadable report.
    with contextlib.suppress(OSError):
        unknown.update(one.hour for one in list_quarantined(root) if one.restored_ms is None)
    followed = follow_ledger(root, opened.contents.position)
    if followed is None:
        return None
    files, more = opened.candidates(query)
    unknown |= followed.hours | more
    window = query.window
    known: defaultdict[Hour, list[Path]] = defaultdict(list)
    for file in files:
        if file.first_ms < window.until_ms and file.last_ms >= window.since_ms and file.hour not in unknown:
            known[file.hour].append(root / file.path)
    return _CatalogFiles(root, query.system_name, dict(known), unknown)


class _CatalogFiles:
    """The files of known hours, and all files of the others."""

    def __init__(
        self, root: Path, system_name: str | None, known: dict[Hour, list[Path]], unknown: set[Hour]
    ) -> None:
        self._root = root
        self._system_name = system_name
        self._known = known
        self._unknown = unknown
        self._all = HourFiles(root, system_name) if len(unknown) > _LISTED_ONE_BY_ONE else None

    @property
    def hours(self) -> set[Hour]:
        return self._known.keys() | self._unknown

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        # Raw files that have come since have only records that were accepted after the question.
        return raw_files(self._root, hour) if hour in self._unknown else {}

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:
        if self._all is not None and hour in self._unknown:
            return self._all.compacted(hour, raws)
        is_known = hour not in self._unknown
        paths = self._known.get(hour, []) if is_known else compacted_in(self._root, hour, self._system_name)
        return [path for path in paths if path.exists()]
