"""The tables of the graph, in plain SQL.

A node's number is a hash of its name: so what the journal has accepted since an index was written is put into
tables of the same form in memory, and both are asked as one. Each row merges what several events tell by
minima and maxima, so it is the same in whichever order they come.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Final, cast

from .analysing import ANALYSIS_SCHEMA, Analyses, is_to_analyze
from .batch import Batch, Known
from .documents import Documents
from .elements import HOUR_US
from .runs import JobRuns

if TYPE_CHECKING:
    import apsw

    from waybill.transport.journal import Entry

    from ..analyzers import Result


GRAPH_SCHEMA: Final = f"""
CREATE TABLE trimmer (rule TEXT NOT NULL) STRICT;
{ANALYSIS_SCHEMA}
CREATE TABLE node (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    part TEXT NOT NULL,
    last_part TEXT NOT NULL,
    first_us INTEGER NOT NULL,
    last_hour INTEGER NOT NULL
) STRICT;
CREATE INDEX node_of_name ON node (name);
CREATE INDEX node_of_last_part ON node (last_part) WHERE kind IN ('dataset', 'job', 'resource');
CREATE TABLE edge (
    source INTEGER NOT NULL,
    kind TEXT NOT NULL,
    target INTEGER NOT NULL,
    job INTEGER NOT NULL,
    analyzer TEXT NOT NULL,
    scope INTEGER NOT NULL,
    confidence REAL NOT NULL,
    detail TEXT NOT NULL,
    place INTEGER NOT NULL,
    first_us INTEGER NOT NULL,
    last_hour INTEGER NOT NULL,
    run TEXT NOT NULL,
    PRIMARY KEY (source, kind, target, job, analyzer)
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_into ON edge (target, kind);
CREATE TABLE belief (
    job INTEGER NOT NULL,
    dataset INTEGER NOT NULL,
    of_columns INTEGER NOT NULL,
    analyzer TEXT NOT NULL,
    confidence REAL NOT NULL,
    first_us INTEGER NOT NULL,
    last_hour INTEGER NOT NULL,
    PRIMARY KEY (job, dataset, of_columns, analyzer, confidence)
) STRICT, WITHOUT ROWID;
CREATE TABLE property (
    node INTEGER NOT NULL,
    key TEXT NOT NULL,
    digest INTEGER NOT NULL,
    value TEXT NOT NULL,
    first_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL,
    PRIMARY KEY (node, key, digest)
) STRICT;
CREATE TABLE job_run (
    run TEXT NOT NULL,
    job INTEGER NOT NULL,
    last_us INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (run, job)
) STRICT, WITHOUT ROWID;
CREATE TABLE ahead (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    said_us INTEGER NOT NULL,
    received_us INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_run_of_job ON job_run (job, last_us);
CREATE TABLE together (
    job INTEGER NOT NULL,
    source INTEGER NOT NULL,
    target INTEGER NOT NULL,
    first_us INTEGER NOT NULL,
    last_hour INTEGER NOT NULL,
    PRIMARY KEY (job, source, target)
) STRICT, WITHOUT ROWID;
CREATE VIEW graph_node (id, kind, namespace, name, part) AS
SELECT CAST(number AS TEXT), kind, namespace, name, part FROM node
UNION ALL SELECT DISTINCT 'namespace/' || namespace, 'namespace', '', namespace, '' FROM node
WHERE kind IN ('dataset', 'job')
UNION ALL SELECT DISTINCT 'run/' || run, 'run', '', run, '' FROM job_run WHERE run <> ''
UNION ALL SELECT DISTINCT 'concept/' || kind, 'concept', '', kind, '' FROM node;
CREATE VIEW graph_edge (source, kind, target, analyzer, confidence, run) AS
SELECT CAST(source AS TEXT), kind, CAST(target AS TEXT), analyzer, confidence, run FROM edge
WHERE confidence > 0
UNION ALL SELECT 'namespace/' || namespace, 'contain', CAST(number AS TEXT), 'event', 1.0, '' FROM node
WHERE kind IN ('dataset', 'job')
UNION ALL SELECT CAST(job AS TEXT), 'run', 'run/' || run, 'event', 1.0, run FROM job_run WHERE run <> ''
UNION ALL SELECT 'concept/' || kind, 'parentconcept', CAST(number AS TEXT), 'event', 1.0, '' FROM node;
"""  # noqa: S608 - texts of our own
_TABLES: Final = ("node", "edge", "belief", "property", "job_run", "together", "analysis", "ahead")
_VIEW: Final = "CREATE TEMP VIEW all_{0} AS SELECT * FROM main.{0} UNION ALL SELECT * FROM disk.{0};\n"
GRAPH_VIEWS: Final = "".join(map(_VIEW.format, _TABLES))
"""The graph of an index and of what is in memory, as one."""

_LEAST: Final = "{0} = CASE WHEN excluded.{0} < {0} THEN excluded.{0} ELSE {0} END"
_GREATEST: Final = "{0} = CASE WHEN excluded.{0} > {0} THEN excluded.{0} ELSE {0} END"
_NEWER: Final = "(-excluded.last_hour, excluded.run, excluded.detail) < (-last_hour, run, detail)"
_NEWEST: Final = f"{{0}} = CASE WHEN {_NEWER} THEN excluded.{{0}} ELSE {{0}} END"
_SEEN: Final = f"{_LEAST.format('first_us')}, {_GREATEST.format('last_hour')}"

_PUT_NODE: Final = f"""
INSERT INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (number) DO UPDATE SET {_SEEN}
"""  # noqa: S608 - texts of our own
_PUT_EDGE: Final = f"""
INSERT INTO edge VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (source, kind, target, job, analyzer) DO UPDATE SET {_GREATEST.format("confidence")},
{_NEWEST.format("detail")}, {_NEWEST.format("run")}, {_LEAST.format("place")}, {_SEEN}
"""  # noqa: S608 - texts of our own
_PUT_BELIEF: Final = f"""
INSERT INTO belief VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (job, dataset, of_columns, analyzer, confidence) DO UPDATE SET {_SEEN}
"""  # noqa: S608 - texts of our own
_PUT_PROPERTY: Final = f"""
INSERT INTO property VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (node, key, digest) DO UPDATE SET {_LEAST.format("first_us")}, {_GREATEST.format("last_us")}
"""  # noqa: S608 - texts of our own
_PUT_AHEAD: Final = f"""
INSERT INTO ahead VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET {_GREATEST.format("said_us")}, {_GREATEST.format("received_us")}
"""  # noqa: S608 - texts of our own
_SAW_PROPERTY: Final = """
UPDATE property SET last_us = ? WHERE node = ? AND key = ? AND digest = ? AND last_us < ?
"""
_FORGET: Final = (
    "DELETE FROM node WHERE last_hour < ?",
    "DELETE FROM edge WHERE last_hour < ?",
    "DELETE FROM belief WHERE last_hour < ?",
    "DELETE FROM together WHERE last_hour < ?",
    "DELETE FROM analysis WHERE last_hour < ?",
    "DELETE FROM property WHERE last_us < ? * 3600000000",
    "DELETE FROM job_run WHERE last_us < ? * 3600000000",
    "DELETE FROM ahead WHERE received_us < ? * 3600000000",
)
_KNOWN_MAX: Final = 100_000
"""So many parts are remembered, at a few hundred bytes each, by a hash as long as a node's number."""


def trimmers_in(connection: apsw.Connection, schema: str = "main") -> tuple[str, ...]:
    """The rules by which a database names datasets; see `dataset_trimmers`."""
    rows = connection.execute(f"SELECT rule FROM {schema}.trimmer ORDER BY rowid")  # noqa: S608 - our own
    return tuple(cast("str", rule) for (rule,) in rows)


def set_trimmers(connection: apsw.Connection, rules: Iterable[str], schema: str = "main") -> None:
    """Note the rules by which a new database names datasets."""
    rows = [(rule,) for rule in rules]
    connection.executemany(f"INSERT INTO {schema}.trimmer VALUES (?)", rows)  # noqa: S608 - our own


class GraphTables:
    """Adds what entries tell to the graph of one database; every call is within a transaction.

    It remembers what is there, so after a transaction that was rolled back another one has to be made.

    Args:
        connection: the database.
        below: the schema of an attached database that has what was told before; empty: there is none.
        analyzed: the keys of the facets that analyzers read; None: they read every event. Events are only
            noted for them.

    Attributes:
        analyses: those events, and what was found in them.
    """

    def __init__(
        self, connection: apsw.Connection, below: str = "", analyzed: tuple[str, ...] | None = ()
    ) -> None:
        self._connection = connection
        self._runs = JobRuns(connection, ("main.", f"{below}.") if below else ("main.",))
        self._rules = trimmers_in(connection, below or "main")
        self._is_tail = bool(below)
        self._documents = Documents(connection)
        self._analyzed = analyzed
        self.analyses = Analyses(connection)
        self._known: dict[int, Known] = {}
        self._size = 0

    def add(self, entries: Iterable[Entry], *, size_max: float = inf) -> int:
        """Add what entries tell; in any order, and repeatedly, it gives the same rows.

        Returns how many it has added: the others have no room, if there are `size_max` nodes, edges and the
        like since this was made.
        """
        batch, added = Batch(self._known, self._rules), 0
        for entry in entries:
            if self._size + batch.size > size_max:
                break
            added += 1
            batch = self._relieve(batch)
            if (event := entry.event) is None or (seen := batch.take(event, entry.received_ms)) is None:
                continue
            if not is_to_analyze(event, entry.body, self._analyzed):
                continue
            if (found := self.analyses.put(event, entry.body, seen)) is not None:
                batch.take_found(*found)
        self._put(batch)
        return added

    def add_findings(self, results: Iterable[Result]) -> None:
        """Add what analyzers found, by the key of the event."""
        batch = Batch({}, self._rules)
        for result in results:
            found = self.analyses.settle(result)
            if found is not None:
                batch.take_found(*found)
        self._put(batch)

    def forget(self, before_ms: int) -> None:
        """Forget what nothing has told of since the hour of an instant, in epoch milliseconds."""
        hour = before_ms * 1_000 // HOUR_US
        worded = self._documents.list_old(hour)
        for statement in _FORGET:
            self._connection.execute(statement, (hour,))
        self._documents.put(worded)
        self._known.clear()

    def _relieve(self, batch: Batch) -> Batch:
        """Put a batch that is full; return the one for what follows."""
        if not batch.is_full:
            return batch
        self._put(batch)
        return Batch(self._known, self._rules)

    def _put(self, batch: Batch) -> None:
        self._size += batch.size
        put = self._connection.executemany
        nodes, properties = batch.node_rows(), batch.property_rows()
        told = {(node, key, digest) for node, key, digest, *_ in properties} | batch.seen_properties.keys()
        worded = set() if self._is_tail else self._documents.list_changed(nodes, told)
        put(_PUT_NODE, nodes)
        put(_PUT_EDGE, batch.edge_rows())
        put(_PUT_BELIEF, batch.belief_rows())
        put(_PUT_PROPERTY, properties)
        put(_PUT_AHEAD, [(*named, *times_us) for named, times_us in sorted(batch.ahead.items())])
        put(_SAW_PROPERTY, [(at_us, *key, at_us) for key, at_us in sorted(batch.seen_properties.items())])
        self._documents.put(worded)
        self._runs.put(batch)
        if len(self._known) > _KNOWN_MAX:
            self._known.clear()
