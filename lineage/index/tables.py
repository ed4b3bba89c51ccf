"""The tables of the index, and how facts get into them.

The same tables hold what the journal has accepted since, in memory: see `reading`. Values that many files
share, such as a producer, are stored once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from waybill.facets import Attempts, EventType, RunEvent, merge_states, observe
from waybill.transport.journal import BegunTransforms
from waybill.transport.runner import OpenRun

from ..graph import GRAPH_SCHEMA, SEARCH_SCHEMA
from .facts import Fact, open_file_of

if TYPE_CHECKING:
    import apsw

    from waybill.transport.journal import Journal

    from .facts import Kind, Told

INDEX: Final = "index"
"""The name of the projection that keeps the index, in the journal."""

INDEX_NAME: Final = "index.db"
"""Its file in a home."""

DAY_MS: Final = 86_400_000

FORMAT: Final = 14
"""The number of the format of the tables; an index of another format is made again."""

SCHEMA: Final = f"""
{GRAPH_SCHEMA}{SEARCH_SCHEMA}CREATE TABLE place (node TEXT NOT NULL, seq INTEGER NOT NULL) STRICT;
CREATE TABLE value (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE fact (
    did TEXT NOT NULL,
    kind TEXT NOT NULL,
    value INTEGER NOT NULL REFERENCES value (number),
    at_ms INTEGER NOT NULL,
    system INTEGER NOT NULL REFERENCES value (number),
    PRIMARY KEY (did, kind, value)
) STRICT, WITHOUT ROWID;
CREATE INDEX fact_of_value ON fact (value, kind);
CREATE INDEX fact_of_day ON fact (system, at_ms);
CREATE TABLE run (
    run TEXT NOT NULL PRIMARY KEY,
    did TEXT,
    began_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    attempts BLOB NOT NULL,
    begun BLOB
) STRICT, WITHOUT ROWID;
CREATE INDEX open_run ON run (did) WHERE did IS NOT NULL;
CREATE TABLE unpublished (
    day INTEGER NOT NULL, system TEXT NOT NULL, PRIMARY KEY (day, system)
) STRICT, WITHOUT ROWID;
"""

_PUT_VALUE: Final = "INSERT INTO value (text) VALUES (?) ON CONFLICT DO NOTHING"
_NUMBER: Final = "SELECT number FROM value WHERE text = ?"
_PUT_FACT: Final = """
INSERT INTO fact VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET at_ms = min(at_ms, excluded.at_ms), system = max(system, excluded.system)
WHERE excluded.at_ms < at_ms OR excluded.system > system
"""
_RUN: Final = "SELECT began_ms, last_ms, attempts, begun FROM {}run WHERE run = ?"
_PUT_RUN: Final = "INSERT OR REPLACE INTO run VALUES (?, ?, ?, ?, ?, ?)"
_PUT_UNPUBLISHED: Final = "INSERT INTO unpublished VALUES (?, ?) ON CONFLICT DO NOTHING"
_FORGET_FACTS: Final = "DELETE FROM fact WHERE at_ms < ?"
_FORGET_OPEN: Final = "DELETE FROM run WHERE did IS NOT NULL AND last_ms < ?"
_FORGET_ENDED: Final = "DELETE FROM run WHERE did IS NULL AND last_ms < ?"
_FORGET_VALUES: Final = """
DELETE FROM value WHERE number NOT IN (SELECT value FROM fact) AND number NOT IN (SELECT system FROM fact)
"""
_SHARED_MAX: Final = 10_000


def place_in(connection: apsw.Connection, schema: str = "main") -> tuple[str, int]:
    """The node of the last entry that an index has, and its number; empty and 0 before the first."""
    row = connection.execute(f"SELECT node, seq FROM {schema}.place").fetchone()  # noqa: S608 - our own
    return cast("tuple[str, int]", row or ("", 0))


def set_place(connection: apsw.Connection, node: str, seq: int) -> None:
    """Note the last entry that an index has."""
    connection.execute("DELETE FROM place")
    connection.execute("INSERT INTO place VALUES (?, ?)", (node, seq))


def place_in_journal(journal: Journal, node: str, seq: int) -> int:
    """The last entry of a journal that an index with this place has.

    The journal may be an earlier copy of the one that the index is of, or another one.
    """
    nodes = journal.nodes()
    ends = [later.after for later in nodes[1:]] + [journal.last_seq()]
    return next((min(seq, end) for one, end in zip(nodes, ends, strict=True) if one.name == node), 0)


class Tables:
    """Adds what entries tell to the tables of one database; every call is within a transaction.

    Args:
        connection: the database.
        below: the schema of an attached database that has what was told before; empty: there is none.
    """

    def __init__(self, connection: apsw.Connection, below: str = "") -> None:
        self._connection = connection
        self._schemas = ("main.", f"{below}.") if below else ("main.",)
        self._numbers: dict[str, int] = {}
        self._changed: set[tuple[int, str]] = set()

    def add(self, told: Iterable[Told]) -> None:
        """Add what entries tell; in any order, and repeatedly, it gives the same rows."""
        runs: dict[str, _Run] = {}
        facts: dict[tuple[str, Kind, str], tuple[int, str]] = {}
        for one in told:
            for did, kind, value, at_ms, system in one.facts:
                known_ms, known_system = facts.get((did, kind, value), (at_ms, system))
                facts[did, kind, value] = (min(at_ms, known_ms), max(system, known_system))
            if one.run not in runs:
                runs[one.run] = self._load(one.run)
            runs[one.run].take(one)
        self.put_facts(Fact(*key, *told) for key, told in sorted(facts.items()))
        for name, run in runs.items():
            self._put(name, run)
        self._changed.update((at_ms // DAY_MS, system) for at_ms, system in facts.values())
        self._connection.executemany(_PUT_UNPUBLISHED, sorted(self._changed))
        self._changed.clear()

    def put_facts(self, facts: Iterable[Fact]) -> None:
        """Put facts, in any order."""
        rows = (
            (did, kind, self._number_of(value), at_ms, self._number_of(system))
            for did, kind, value, at_ms, system in facts
        )
        self._connection.executemany(_PUT_FACT, list(rows))

    def put_open(self, begun: OpenRun, began_ms: int, last_ms: int) -> None:
        """Put a run that is open, of which the database knows nothing else."""
        run = _Run()
        run.open = _Open(began_ms, last_ms, begun)
        self._put(begun.run_id, run)

    def forget(self, before_ms: int) -> None:
        """Forget what was told before an instant, in epoch milliseconds, and open runs silent since then."""
        for query in (_FORGET_FACTS, _FORGET_OPEN):
            self._connection.execute(query, (before_ms,))
        self._connection.execute(_FORGET_VALUES)
        self._numbers.clear()

    def forget_ends(self, before_ms: int) -> None:
        """Forget the ends that were received before an instant: no beginning is expected to come later."""
        self._connection.execute(_FORGET_ENDED, (before_ms,))

    def _load(self, name: str) -> _Run:
        for schema in self._schemas:
            row = self._connection.execute(_RUN.format(schema), (name,)).fetchone()
            if row is not None:
                began_ms, last_ms, attempts, begun = cast("tuple[int, int, bytes, bytes | None]", row)
                is_open = None if begun is None else _Open(began_ms, last_ms, OPEN_RUN.decode(begun))
                return _Run(is_open, _ATTEMPTS.decode(attempts))
        return _Run()

    def _put(self, name: str, run: _Run) -> None:
        run.fold()
        if run.stored == (run.open, run.attempts):
            return
        before, now = run.stored[0], run.open
        for changed in (before, now) if before != now else ():
            if changed is not None:
                self._changed.add((changed.began_ms // DAY_MS, changed.begun.of_system))
        attempts = msgspec.msgpack.encode(run.attempts)
        row: tuple[Any, ...] = (None, run.last_ms, run.last_ms, attempts, None)
        if now is not None:
            did = open_file_of(now.begun, now.began_ms, now.last_ms).did
            row = (did, now.began_ms, now.last_ms, attempts, msgspec.msgpack.encode(now.begun))
        self._connection.execute(_PUT_RUN, (name, *row))

    def _number_of(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            self._connection.execute(_PUT_VALUE, (text,))
            number = cast("int", self._connection.execute(_NUMBER, (text,)).get)
            if len(self._numbers) >= _SHARED_MAX:
                self._numbers.clear()
            self._numbers[text] = number
        return number


class _Open(NamedTuple):
    """A run that is open.

    Attributes:
        began_ms: when its first entry was received.
        last_ms: when its last entry was received.
        begun: the values that its end has to repeat, and what its events have told.
    """

    began_ms: int
    last_ms: int
    begun: OpenRun


_NONE: Final = Attempts()


class _Run:
    """What is known of a run, while entries of it are added."""

    def __init__(self, is_open: _Open | None = None, attempts: Attempts = _NONE) -> None:
        self.open = is_open
        self.attempts = attempts
        self.last_ms = 0
        self.stored = (is_open, attempts)
        self._unfolded: list[tuple[RunEvent, str]] = []

    def take(self, told: Told) -> None:
        """Take what an entry tells of the run."""
        entry, said = told.entry, told.said
        if isinstance(said, BegunTransforms):
            if self.open is not None:
                begun = msgspec.structs.replace(self.open.begun, begun=said)
                self.open = self.open._replace(last_ms=max(self.open.last_ms, entry.received_ms), begun=begun)
            return
        may_begin = said.eventType is EventType.START or not self.attempts.endings
        self.attempts = self.attempts.merge(Attempts.of(said, told.at_us))
        if self.attempts.has_ended:
            self.open, self._unfolded = None, []
        self.last_ms = received_ms = entry.received_ms
        if told.has_ended:
            return
        if self.open is not None:
            began_ms, last_ms, begun = self.open
            if received_ms < began_ms:
                begun = msgspec.structs.replace(OpenRun.begun_by(said, entry), told=begun.told)
            self.open = _Open(min(began_ms, received_ms), max(last_ms, received_ms), begun)
        elif may_begin and not self.attempts.has_ended:
            self.open = _Open(received_ms, received_ms, OpenRun.begun_by(said, entry))
        if self.open is not None:
            self._unfolded.append((said, entry.system_name))

    def fold(self) -> None:
        """Fold what the events of an open run have told, as far as its record needs it before its end."""
        states = [observe(said, system_name=name) for said, name in self._unfolded]
        if self.open is not None and states:
            begun = self.open.begun
            told = merge_states(*states, *([] if begun.told is None else [begun.told]))
            told = msgspec.structs.replace(
                told,
                created_us=min(told.created_us, self.attempts.first_us or told.created_us),
                endings=(),
                causes=(),
                outputs=told.outputs[:1],
                others=(),
            )
            self.open = self.open._replace(begun=msgspec.structs.replace(begun, told=told))


OPEN_RUN: Final = msgspec.msgpack.Decoder(OpenRun)
_ATTEMPTS: Final = msgspec.msgpack.Decoder(Attempts)
