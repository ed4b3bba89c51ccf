"""The tables of the index, and how facts get into them.

The same tables hold what the journal has accepted since, in memory: see `reading`. Values that many files
share, such as a producer, are stored once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import msgspec

from waybill.facets import EventType
from waybill.transport.journal import BegunTransforms
from waybill.transport.runner import OpenRun

from ..graph import GRAPH_SCHEMA, SEARCH_SCHEMA
from .facts import Fact

if TYPE_CHECKING:
    import apsw

    from waybill.transport.journal import Journal

    from .facts import Kind, Told

INDEX: Final = "index"
"""The name of the projection that keeps the index, in the journal."""

INDEX_NAME: Final = "index.db"
"""Its file in a home."""

DAY_MS: Final = 86_400_000

FORMAT: Final = 9
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
CREATE TABLE open_run (
    run TEXT NOT NULL PRIMARY KEY,
    did TEXT NOT NULL,
    at_us INTEGER NOT NULL,
    began_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    begun BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX open_run_of_file ON open_run (did);
CREATE TABLE ended_run (
    run TEXT NOT NULL PRIMARY KEY,
    at_us INTEGER NOT NULL,
    received_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
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
_OPEN: Final = "SELECT at_us, began_ms, last_ms, begun FROM {}open_run WHERE run = ?"
_ENDED: Final = "SELECT at_us FROM {}ended_run WHERE run = ?"
_PUT_OPEN: Final = "INSERT OR REPLACE INTO open_run VALUES (?, ?, ?, ?, ?, ?)"
_CUT_OPEN: Final = "DELETE FROM open_run WHERE run = ?"
_PUT_ENDED: Final = "INSERT OR REPLACE INTO ended_run VALUES (?, ?, ?)"
_PUT_UNPUBLISHED: Final = "INSERT INTO unpublished VALUES (?, ?) ON CONFLICT DO NOTHING"
_FORGET_FACTS: Final = "DELETE FROM fact WHERE at_ms < ?"
_FORGET_OPEN: Final = "DELETE FROM open_run WHERE last_ms < ?"
_FORGET_ENDED: Final = "DELETE FROM ended_run WHERE received_ms < ?"
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
        run.open = _Open(0, began_ms, last_ms, begun)
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
        run = _Run()
        for schema in self._schemas:
            ended = self._connection.execute(_ENDED.format(schema), (name,)).get
            run.ended_us = max(run.ended_us, cast("int", ended or 0))
        for schema in self._schemas:
            row = self._connection.execute(_OPEN.format(schema), (name,)).fetchone()
            if row is not None and run.open is None:
                at_us, began_ms, last_ms, begun = cast("tuple[int, int, int, bytes]", row)
                run.open = _Open(at_us, began_ms, last_ms, _OPEN_RUN.decode(begun))
        if run.open is not None and run.open.at_us <= run.ended_us:
            run.open = None  # it has ended since, in the other database
        run.stored = (run.open, run.ended_us)
        return run

    def _put(self, name: str, run: _Run) -> None:
        before, ended_us = run.stored
        for changed in {before, run.open} if before != run.open else ():
            if changed is not None:
                self._changed.add((changed.began_ms // DAY_MS, changed.begun.of_system))
        if run.open is None and before is not None:
            self._connection.execute(_CUT_OPEN, (name,))
        elif run.open is not None and run.open != before:
            at_us, began_ms, last_ms, begun = run.open
            did = begun.did
            body = msgspec.msgpack.encode(begun)
            self._connection.execute(_PUT_OPEN, (name, did, at_us, began_ms, last_ms, body))
        if run.ended_us != ended_us:
            self._connection.execute(_PUT_ENDED, (name, run.ended_us, run.received_ms))

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
        at_us: when it began by its latest START, in epoch microseconds; 0: no START of it came.
        began_ms: when its first entry was received.
        last_ms: when its last entry was received.
        begun: the values that its end has to repeat.
    """

    at_us: int
    began_ms: int
    last_ms: int
    begun: OpenRun


class _Run:
    """What is known of a run, while entries of it are added."""

    def __init__(self) -> None:
        self.open: _Open | None = None
        self.ended_us = 0
        self.received_ms = 0
        self.stored: tuple[_Open | None, int] = (None, 0)

    def take(self, told: Told) -> None:
        """Take what an entry tells of the run: it is open if it began after its last end."""
        if told.has_ended:
            self.ended_us = max(self.ended_us, told.at_us)
            self.received_ms = told.entry.received_ms
            if self.open is not None and self.open.at_us <= self.ended_us:
                self.open = None
            return
        received_ms, said = told.entry.received_ms, told.said
        if isinstance(said, BegunTransforms):
            if self.open is not None:
                begun = msgspec.structs.replace(self.open.begun, begun=said)
                self.open = self.open._replace(last_ms=max(self.open.last_ms, received_ms), begun=begun)
            return
        start_us = told.at_us if said.eventType is EventType.START else 0
        if self.open is not None:
            at_us, began_ms, last_ms, begun = self.open
            if received_ms < began_ms:
                begun = OpenRun.begun_by(said, told.entry)
            self.open = _Open(
                max(at_us, start_us), min(began_ms, received_ms), max(last_ms, received_ms), begun
            )
        elif start_us > self.ended_us or not self.ended_us:
            self.open = _Open(start_us, received_ms, received_ms, OpenRun.begun_by(said, told.entry))


_OPEN_RUN: Final = msgspec.msgpack.Decoder(OpenRun)
