"""Listing the files that may hold part of an answer, by the keys instead of the folders.

The keys know what the files had up to an entry of the ledger. The hours that later entries name are listed
from their folders, and so are the hours with raw files, with records that are in no file yet, and with files
that could not be read. There, every file is read. In all other hours, only the files are read that have the
texts which the query asks for.

The raw hours are listed before the ledger is read. A record that a compaction moves out of a raw file in
between is in an hour that the ledger names by then, because an entry is begun before its files change.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.transport.errors import reason_of

from ..directory import FileStamp, compacted_files, raw_files, raw_hours
from ..hour_files import HourFiles
from ..ledger import compare_files, follow_ledger
from ..names import KEYS
from ..quarantine import list_quarantined
from ..query import FOLDERS, Access
from .changed import Comparison
from .contents import CONTENTS, DamagedError, read_contents
from .hashes import wanted_hashes
from .opened import FilesByHour, OpenKeys, lacking
from .spans import set_aside, stamp_of, version_of

if TYPE_CHECKING:
    import pyarrow as pa

    from ..differing import Differing
    from ..names import Hour, RawName
    from ..query import Dimension, Listing, Query

_TRIES: Final = 3
_LISTED_ONE_BY_ONE: Final = 50
"""For more hours than this, listing all folders once takes less time than looking into all for each hour."""


class Keys(Access):
    """The keys of a root, to read only; one object serves many questions about one root, from any thread.

    Without keys, or with some that cannot be used, every file is listed from the folders.
    """

    def __init__(self) -> None:
        self._problem: str | None = None
        self._asked: OpenKeys | None = None
        self._lock = threading.Lock()
        self._comparison = Comparison()
        self._opened: OpenKeys | None = None
        self._stamp: FileStamp | None = None

    @property
    def problem(self) -> str | None:
        """Why answers take longer now, in a sentence; None if they do not."""
        return self._problem or (None if self._asked is None else self._asked.problem)

    def list_files(self, root: Path, query: Query, unfiled: Collection[Hour]) -> Listing:
        """List the files that may hold part of an answer: see `waybill.exporter.query.Access`.

        Raises:
            OSError: a folder cannot be read.
        """
        for _ in range(_TRIES):
            try:
                self._asked = opened = self._current(root)
                if opened is not None:
                    self._comparison.run(opened)
                found = None if opened is None else _listed(opened, query, unfiled)
                self._problem = None
                return found or FOLDERS.list_files(root, query, unfiled)
            except FileNotFoundError:
                # They were replaced in this moment.
                self._problem = lacking(root)
            except OSError as error:
                # If it is the root that cannot be read, listing all files says so.
                self._problem = (
                    f"{root / KEYS} cannot be read ({reason_of(error)}); until it can, answers take longer"
                )
                break
            except DamagedError as error:
                self._problem = set_aside(error.path, error)
                break
        return FOLDERS.list_files(root, query, unfiled)

    def compare(self, root: Path) -> None:
        """Note which files of a root are not the ledger's, unless that was done lately: a question does it.

        Raises:
            OSError: a folder or the ledger cannot be read.
        """
        with contextlib.suppress(DamagedError, FileNotFoundError):
            if (opened := self._current(root)) is not None:
                self._comparison.run(opened)

    def _current(self, root: Path) -> OpenKeys | None:
        """The keys as they are now; None if there are none."""
        with self._lock:
            try:
                stamp = FileStamp.of((root / CONTENTS).stat())
            except FileNotFoundError:
                return None
            before = self._opened if self._opened is not None and self._opened.root == root else None
            if before is None or self._stamp != stamp:
                contents = read_contents(root)
                self._opened = None if contents is None else OpenKeys(root, contents, before)
                self._stamp = stamp
            return self._opened


def _listed(opened: OpenKeys, query: Query, unfiled: Collection[Hour]) -> Listing | None:
    """The files of known hours that may hold part of an answer, and all files of the others.

    None: the ledger does not go on from where the keys end.
    """
    root, contents = opened.root, opened.contents
    unknown = {*unfiled, *raw_hours(root), *contents.waiting, *contents.whole}
    # `Unread.add_known` reports an unreadable report.
    with contextlib.suppress(OSError):
        unknown.update(one.hour for one in list_quarantined(root) if one.restored_ms is None)
    followed = follow_ledger(root, contents.position)
    if followed is None:
        return None
    unknown |= followed.hours
    hashes = wanted_hashes(query)
    if not hashes:
        # Those with a kind are looked for when an hour is asked for: sums may be all that a question needs.
        every = opened.by_hour
        return _Files(opened, query, unknown, lambda: opened.of_kind(query) or every)
    files, more = opened.look_up(query, hashes)
    return _Files(opened, query, unknown | more, lambda: files)


class _Files:
    """Of the known hours, some files, and of the others all: a `Listing`."""

    def __init__(
        self, opened: OpenKeys, query: Query, unknown: set[Hour], find: Callable[[], FilesByHour]
    ) -> None:
        self._opened = opened
        self._root = opened.root
        self._query = query
        self._unknown = unknown
        self._find = find
        self._changed: set[Hour] = set()
        self._asked: set[Hour] = set()

    @functools.cached_property
    def hours(self) -> Sequence[Hour]:
        known = self._known.hours
        # Of years, few hours are unknown.
        more = [hour for hour in self._unknown if known[bisect_left(known, hour) :][:1] != [hour]]
        return sorted([*known, *more]) if more else known

    def raw(self, hour: Hour) -> dict[RawName, Path]:
        # Raw files that have come since have only records that were accepted after the question.
        return raw_files(self._root, hour) if hour in self._unknown else {}

    def compacted(self, hour: Hour, raws: Collection[RawName]) -> list[Path]:
        if hour not in self._unknown:
            return self._of_known(hour)
        self._asked.add(hour)
        if len(self._asked) > _LISTED_ONE_BY_ONE:
            return self._all.compacted(hour, raws)
        return compacted_files(self._root, [hour], self._query.system_name)[hour]

    def differing(self) -> Sequence[Differing]:
        return compare_files(self._root, self._changed) if self._changed else ()

    def counted(self, query: Query, by: Collection[Dimension]) -> tuple[pa.Table | None, Listing]:
        found = self._opened.count(query, by, self._unknown) if query.is_by_kind else None
        if found is None:
            return None, self
        sums, files = found
        return sums, _Files(self._opened, self._query, self._unknown, lambda: files)

    def _of_known(self, hour: Hour) -> list[Path]:
        paths = []
        for one in self._known.of(hour):
            if self._opened.is_asked_for(one, self._query):
                paths.append(path := self._root / one.path)
                if not _is_same(path, one.stamp):
                    self._changed.add(hour)
        return paths

    @functools.cached_property
    def _known(self) -> FilesByHour:
        return self._find()

    @functools.cached_property
    def _all(self) -> HourFiles:
        return HourFiles(self._root, self._query.system_name)


def _is_same(path: Path, stamp: str) -> bool:
    """Whether a file is the one that the keys know."""
    try:
        return version_of(stamp_of(path.stat())) == version_of(stamp)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # Reading it says what is wrong.
