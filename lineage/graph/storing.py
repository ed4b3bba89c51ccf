"""The tables of the graph, in plain SQL.

A node's number is a hash of its name: so what the journal has accepted since an index was written is put into
tables of the same form in memory, and both are asked as one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import msgspec

from waybill.facets import (
    UNREADABLE,
    RunEvent,
    RunState,
    facet_records,
    has_record,
    merge_states,
    observe,
    parse_instant_us,
)

from .observing import observe_graph

if TYPE_CHECKING:
    from collections.abc import Iterable

    import apsw

    from waybill.facets import Event
    from waybill.transport.journal import Entry

    from .elements import Edge, Node

GRAPH_SCHEMA: Final = """
CREATE TABLE node (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    column_name TEXT NOT NULL,
    last_us INTEGER NOT NULL
) STRICT;
CREATE INDEX node_of_name ON node (name);
CREATE TABLE edge (
    source INTEGER NOT NULL,
    kind TEXT NOT NULL,
    target INTEGER NOT NULL,
    place INTEGER NOT NULL,
    last_us INTEGER NOT NULL,
    PRIMARY KEY (source, kind, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_into ON edge (target, kind, source);
CREATE TABLE job_run (
    run TEXT NOT NULL,
    job INTEGER NOT NULL,
    last_us INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (run, job)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_run_of_job ON job_run (job, last_us);
"""
GRAPH_TABLES: Final = ("node", "edge", "job_run")

OF_FILES: Final = ""
"""The run of a job whose runs are files: it is the one of them that ended last, since each has a record."""

_PUT_NODE: Final = """
INSERT INTO node VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET last_us = excluded.last_us WHERE excluded.last_us > last_us
"""
_PUT_EDGE: Final = """
INSERT INTO edge VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET place = min(place, excluded.place), last_us = max(last_us, excluded.last_us)
WHERE excluded.place < place OR excluded.last_us > last_us
"""
_RUN: Final = "SELECT state FROM {}job_run WHERE run = ? AND job = ?"
_PUT_RUN: Final = "INSERT OR REPLACE INTO job_run VALUES (?, ?, ?, ?)"
_FORGET: Final = "DELETE FROM {} WHERE last_us < ?"


class LastFile(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The file of a job that ended last; the greatest counts."""

    ended_us: int
    began_us: int
    final_state: str
    did: str


class GraphTables:
    """Adds what entries tell to the graph of one database; every call is within a transaction.

    Args:
        connection: the database.
        below: the schema of an attached database that has what was told before; empty: there is none.
    """

    def __init__(self, connection: apsw.Connection, below: str = "") -> None:
        self._connection = connection
        self._schemas = ("main.", f"{below}.") if below else ("main.",)

    def add(self, entries: Iterable[Entry]) -> None:
        """Add what entries tell; in any order, and repeatedly, it gives the same rows."""
        batch = _Batch()
        for entry in entries:
            if (event := entry.event) is not None:
                batch.take(event)
        self._connection.executemany(
            _PUT_NODE,
            [
                (node.number, *msgspec.structs.astuple(node), at_us)
                for node, at_us in sorted(batch.nodes.items())
            ],
        )
        self._connection.executemany(
            _PUT_EDGE,
            [
                (edge.source.number, edge.kind, edge.target.number, place, at_us)
                for edge, (place, at_us) in sorted(batch.edges.items())
            ],
        )
        for (run, job), state in batch.runs.items():
            self._put_run(run, job.number, state)
        for job, file in batch.files.items():
            self._put_file(job.number, file)

    def forget(self, before_ms: int) -> None:
        """Forget what nothing has told of since an instant, in epoch milliseconds."""
        for table in GRAPH_TABLES:
            self._connection.execute(_FORGET.format(table), (before_ms * 1_000,))

    def _put_run(self, run: str, job: int, state: RunState) -> None:
        known = [_STATE.decode(row) for row in self._load(run, job)]
        merged = merge_states(state, *known)
        if merged not in known:
            last_us = max([merged.begun_us, merged.created_us, *(one.time_us for one in merged.endings)])
            self._connection.execute(_PUT_RUN, (run, job, last_us, msgspec.msgpack.encode(merged)))

    def _put_file(self, job: int, file: LastFile) -> None:
        known = [_FILE.decode(row) for row in self._load(OF_FILES, job)]
        if all(file > one for one in known):
            self._connection.execute(_PUT_RUN, (OF_FILES, job, file.ended_us, msgspec.msgpack.encode(file)))

    def _load(self, run: str, job: int) -> list[bytes]:
        rows = (self._connection.execute(_RUN.format(schema), (run, job)).get for schema in self._schemas)
        return [cast("bytes", row) for row in rows if row is not None]


class _Batch:
    """What the entries of a batch tell, each thing once."""

    def __init__(self) -> None:
        self.nodes: dict[Node, int] = {}
        self.edges: dict[Edge, tuple[int, int]] = {}
        self.runs: dict[tuple[str, Node], RunState] = {}
        self.files: dict[Node, LastFile] = {}

    def take(self, event: Event) -> None:
        try:
            at_us = parse_instant_us(event.eventTime)
        except UNREADABLE:
            return  # the layout sets it aside
        job, nodes, edges = observe_graph(event)
        for node in nodes:
            self.nodes[node] = max(at_us, self.nodes.get(node, 0))
        for edge, place in edges.items():
            known_place, known_us = self.edges.get(edge, (place, 0))
            self.edges[edge] = (min(place, known_place), max(at_us, known_us))
        if job is not None and isinstance(event, RunEvent):
            self._take_run(job, event)

    def _take_run(self, job: Node, event: RunEvent) -> None:
        if has_record(event):
            file = _file_of(event)
            self.files[job] = max(file, self.files.get(job, file))
            return
        facets = event.run.facets
        if facets is not None and (facets.delta_file is not None or facets.summary):
            return  # a file that has begun, or a summary of files
        state = _of_last_run(observe(event, system_name=""))
        key = (event.run.runId, job)
        known = self.runs.get(key)
        self.runs[key] = state if known is None else merge_states(known, state)


def _of_last_run(state: RunState) -> RunState:
    """A run's state without what a job's last run does not show."""
    return RunState(
        run_id=state.run_id,
        system_name="",
        created_us=state.created_us,
        namespace=state.namespace,
        begun_us=state.begun_us,
        endings=state.endings,
    )


def _file_of(event: RunEvent) -> LastFile:
    (record,) = facet_records(event, system_name="")
    ended_us, began_us = record.completed * 1_000, record.created * 1_000
    return LastFile(ended_us, began_us, str(record.final_state), record.did)


_STATE: Final = msgspec.msgpack.Decoder(RunState)
_FILE: Final = msgspec.msgpack.Decoder(LastFile)
