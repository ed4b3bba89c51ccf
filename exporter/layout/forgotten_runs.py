"""The runs that the layout has forgotten, and how one of them is brought back from the archive.

A run is forgotten when it got no event for as long as the journal keeps entries. An event that comes even
later, such as a failure after a week of work, is merged with the run's earlier events, as if the run had
never been forgotten.

Most runs that are not stored are new, and searching for them would cost more as the archive grows. So a set
has the key of every run that the archive has and the layout's state has not; other runs are not searched for.
Runs enter the set when they are forgotten. Those in files whose entries the layout has not folded enter it
before the next batch: it was off when they came, or a journal filed them that has since lost them, or that
this one is a copy of.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from waybill.transport.journal import key_of_run

from .. import parquet
from ..archive import archived_files, folder_hour, read_run_ids
from ..names import LAYOUT, RawName, hour_of
from ..parquet import Covers

if TYPE_CHECKING:
    from waybill.transport.journal import Node, StateStore

    from ..rebuilding import StatesByRun

log = logging.getLogger("waybill.exporter")

# State keys.
KNOWN: Final = "known"  # of the ranges of entries whose runs are stored, or in the set
LEVELS: Final = "forgotten"  # of the set's levels
ROW: Final = "forgotten:"  # of its rows: number of the level, then of the row

_TIMED_VERSION: Final = 7
_SKEW_MS: Final = 86_400_000
"""How far a sender's clock may be ahead of the clock that stamps arrivals."""
_MARK_DIGITS: Final = 8  # hexadecimal
_ROW_MARKS: Final = 128
_FIRST_ROWS: Final = 2_048
_ASKED_AT_ONCE: Final = 1_000


class _Level(msgspec.Struct, array_like=True):
    """One level of the set.

    Attributes:
        number: distinguishes its rows from those of other levels.
        rows: how many rows it has; rows without keys are not stored.
        keys: how many keys it contains.
        until_ms: all its runs got their last event before this instant, in epoch milliseconds of received
            time; 0 while it still gets keys.
    """

    number: int
    rows: int
    keys: int = 0
    until_ms: int = 0

    def row_of(self, key: str) -> str:
        """The state key of the row that has the mark of a run's key."""
        return f"{ROW}{self.number}:{int(key[:-_MARK_DIGITS], 16) % self.rows}"


class RunKeys:
    """A set of runs' keys with rare false positives: each takes about 5 bytes.

    Each key appends 4 bytes of itself, its mark, to one row, so a look-up reads one row of each level. A
    level with 128 marks a row gets no more. The next one is as large as all earlier ones together, so there
    are few. About one look-up in ten million finds a mark by chance.

    Args:
        store: has the set.
        archive_began_ms: the earliest possible arrival of an archived entry, in epoch milliseconds; None if
            nothing is archived. Runs whose events all came earlier are not worth remembering.
    """

    def __init__(self, store: StateStore, archive_began_ms: Callable[[], int | None]) -> None:
        self._store = store
        self._archive_began_ms = archive_began_ms
        stored = store.state_of(LAYOUT, [LEVELS]).get(LEVELS)
        self._levels = [] if stored is None else _DECODER.decode(stored)

    def among(self, keys: Iterable[str]) -> set[str]:
        """The keys that were added, and hardly any other. Those of a level that was dropped are left out."""
        found: set[str] = set()
        asked = list(keys) if self._levels else []
        for start in range(0, len(asked), _ASKED_AT_ONCE):
            some = asked[start : start + _ASKED_AT_ONCE]
            places = {key: [level.row_of(key) for level in self._levels] for key in some}
            rows = self._store.state_of(LAYOUT, list(chain.from_iterable(places.values())))
            found.update(key for key in some if any(_mark(key) in rows.get(at, b"") for at in places[key]))
        return found

    def add(self, keys: Iterable[str], now_ms: int, put: dict[str, bytes], delete: list[str]) -> None:
        """Add the keys of runs that got their last events before `now_ms`, by received time.

        The change of state must be committed together with the change that forgets the runs.
        """
        marks: defaultdict[str, bytes] = defaultdict(bytes)
        for key in keys:
            level = self._open_level(now_ms, delete)
            level.keys += 1
            marks[level.row_of(key)] += _mark(key)
        stored = self._store.state_of(LAYOUT, marks)
        put.update({row: stored.get(row, b"") + more for row, more in marks.items()})
        if marks:
            put[LEVELS] = msgspec.msgpack.encode(self._levels)

    def _open_level(self, now_ms: int, delete: list[str]) -> _Level:
        """The level for the next key."""
        if self._levels and self._levels[-1].keys < self._levels[-1].rows * _ROW_MARKS:
            return self._levels[-1]
        number, rows = 0, _FIRST_ROWS
        if self._levels:
            self._levels[-1].until_ms = now_ms
            number = self._levels[-1].number + 1
            rows = max(sum(level.rows for level in self._levels), _FIRST_ROWS)
            began_ms = self._archive_began_ms()
            while began_ms is not None and self._levels and self._levels[0].until_ms <= began_ms:
                outdated = self._levels.pop(0)
                delete.extend(f"{ROW}{outdated.number}:{row}" for row in range(outdated.rows))
        self._levels.append(_Level(number, rows))
        return self._levels[-1]


class ForgottenRuns:
    """The forgotten runs of one journal.

    Args:
        store: has the set of their keys.
        root: the folder with the archive.
        nodes: returns the journal's nodes.
        system_name: for entries without a stamped name.
    """

    def __init__(
        self, store: StateStore, root: Path, nodes: Callable[[], Collection[Node]], system_name: str
    ) -> None:
        self._store = store
        self._root = root
        self._nodes = nodes
        self._system_name = system_name
        self._keys = RunKeys(store, self._archive_began_ms)
        self.add = self._keys.add

    def take_in(self, batch: RawName, now_ms: int) -> dict[str, bytes]:
        """Add the runs of archived entries that were not folded before a batch; return state to put with it.

        There are some only if the entry before the batch was not folded under the same node. What is added is
        stored at once: nothing refers to it yet, and adding it again adds the same.
        """
        stored = self._store.state_of(LAYOUT, [KNOWN]).get(KNOWN)
        known = Covers() if stored is None else Covers.decode(stored)
        nodes = {node.name for node in self._nodes()}
        is_gapless = known.has(RawName(batch.node, batch.first - 1, batch.first - 1))
        for name, path in () if is_gapless else archived_files(self._root):
            is_new = name.node == batch.node and name.first >= batch.first
            if is_new or name.node not in nodes or known.has(name):
                continue
            try:
                keys = map(key_of_run, read_run_ids(path))
            except parquet.DAMAGED as error:
                log.warning("%s", parquet.unreadable(path, error, root=self._root))
                continue
            known = known.adding([name])
            put, delete = {KNOWN: known.encode()}, list[str]()
            self._keys.add(keys, now_ms, put, delete)
            self._store.commit(LAYOUT, put=put, delete=delete, durable=False)
        return {KNOWN: known.adding([batch]).encode()}

    def among(self, runs: Mapping[str, str], before_ms: int) -> StatesByRun:
        """What entries that arrived before an instant tell of some runs, by id; `runs` are ids by key.

        Runs without such entries are left out. A file that cannot be read is logged, its entries are missing.
        """
        run_ids = {runs[key] for key in self._keys.among(runs)}
        if not run_ids:
            return {}
        # They load what rebuilds a root, which a question that knows all runs does not need.
        from ..rebuilding import GatheredRuns, PartReport, Wanted, read_folded
        from ..sources import EventsSource

        began_ms = min(begun_ms(run_id) or 0 for run_id in run_ids)
        source = EventsSource(self._root)
        nodes = {node.name for node in self._nodes()}
        gathered, wanted = GatheredRuns(), Wanted(system_name=self._system_name)
        for name, path in archived_files(self._root, hour_of(max(began_ms - _SKEW_MS, 0))):
            if name.node not in nodes or folder_hour(path).start_ms >= before_ms:
                continue
            part = str(path)
            report = PartReport()
            read = partial(source.read, part, run_ids=run_ids, before_ms=before_ms)
            for _, states in read_folded(read, partial(source.place, part), wanted, report):
                for run_id, state in states.items():
                    gathered.add(run_id, state)
            if problem := report.damaged or report.first_unreadable:
                log.warning("%s", problem)
        return gathered.states()

    def _archive_began_ms(self) -> int | None:
        return next((folder_hour(path).start_ms for _, path in archived_files(self._root)), None)


def begun_ms(run_id: str) -> int | None:
    """When a run began according to its id, in epoch milliseconds; None if the id does not show it."""
    try:
        uuid = UUID(run_id)
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == _TIMED_VERSION else None


def _mark(key: str) -> bytes:
    return bytes.fromhex(key[-_MARK_DIGITS:])


_DECODER: Final = msgspec.msgpack.Decoder(list[_Level])
