"""What a home, its root and its export answer is what a naive model of the accepted events says."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import Phase, given, settings as hypothesis_settings, strategies as st

from waybill.exporter import Query, export, open_destination
from waybill.facets import (
    FinalState,
    ProvenanceRecord,
    decode_event,
    decode_records,
    fold,
    merge_all,
    parents_of,
    record_key,
)
from waybill.facets.event import RunEvent
from waybill.lineage import IndexReader, Lineage
from waybill.transport import Journal, Kind, Settings, flush
from waybill.transport.config import agree
from waybill.transport.runner.projection import open_projections

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

START_MS = 1_769_860_800_000
HOUR_MS = 3_600_000
SYSTEM = "edge"
DIDS = [f"01a1fd6a-9e75-7d78-870f-00000000000{digit}" for digit in "1234567"]
NAMES = ["a.csv", "b.csv", "a[1].csv"]
SINKS = ["lake", "report"]
LEVELS = list(range(len(DIDS)))


def instant(at_ms: int) -> str:
    return f"2026-01-31T{12 + at_ms // HOUR_MS:02}:00:{at_ms // 1_000 % 60:02}.{at_ms % 1_000:03}Z"


def sent_records(records: Iterable[dict[str, object]]) -> tuple[Kind, bytes]:
    return Kind.PROVENANCE, json.dumps(list(records)).encode()


def sent_event(
    did: str,
    kind: str,
    at_ms: int,
    *,
    parents: list[str],
    facet: dict[str, object] | None,
    inputs: list[str],
    outputs: list[str],
) -> tuple[Kind, bytes]:
    facets: dict[str, object] = {}
    if facet is not None:
        own = {"did": did, "parentDid": parents[0] if parents else None, "systemName": SYSTEM, **facet}
        facets["waybill_deltaFile"] = {name: value for name, value in own.items() if value is not None}
        if len(parents) > 1:
            upstream = [
                {"run": {"runId": parent}, "job": {"namespace": SYSTEM, "name": "in"}} for parent in parents
            ]
            facets["jobDependencies"] = {"upstream": upstream}
    elif parents:
        facets["parent"] = {"run": {"runId": parents[0]}, "job": {"namespace": SYSTEM, "name": "app"}}
    event = {
        "eventTime": instant(at_ms),
        "eventType": kind,
        "producer": "https://example.org",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": did, "facets": facets},
        "job": {"namespace": SYSTEM, "name": "work"},
        "inputs": [{"namespace": "file", "name": f"/in/{name}"} for name in inputs],
        "outputs": [{"namespace": "file", "name": f"/out/{name}"} for name in outputs],
    }
    return Kind.OPENLINEAGE, json.dumps(event).encode()


@st.composite
def families(draw: st.DrawFn) -> dict[str, list[str]]:
    """The parents of each file: mostly earlier ones; now and then any, so that there are circles."""
    found = {}
    for level, did in enumerate(DIDS):
        some = st.sampled_from(DIDS[:level] or DIDS) if draw(st.integers(0, 9)) else st.sampled_from(DIDS)
        found[did] = draw(st.lists(some, max_size=3, unique=True))
    return found


@st.composite
def sendings(draw: st.DrawFn, family: dict[str, list[str]]) -> tuple[Kind, bytes]:
    """Records of DeltaFi, or an event of a tracked file (two to four) or of a run (five and six).

    Each names all parents or, of a joined file, only the first.
    """
    level = draw(st.sampled_from(LEVELS))
    did, at_ms = DIDS[level], draw(st.sampled_from([0, 1, 1_000, HOUR_MS]))
    parents = family[did][: draw(st.sampled_from([1, 3]))]
    name = draw(st.sampled_from(NAMES))
    if level < 2:
        record: dict[str, object] = {
            "did": did,
            "parentDid": parents[0] if parents else None,
            "systemName": SYSTEM,
            "dataSource": draw(st.sampled_from(["sftp", "http"])),
            "filename": name,
            "transforms": draw(st.lists(st.sampled_from(["unpack"]), max_size=1)),
            "dataSink": draw(st.none() | st.sampled_from(SINKS)),
            "finalState": draw(st.sampled_from(["COMPLETE", "ERROR"])),
            "created": START_MS,
            "completed": START_MS + at_ms,
            "annotations": draw(st.dictionaries(st.just("customer"), st.sampled_from(["x", "y"]))),
        }
        return sent_records([record])
    kind = draw(st.sampled_from(["START", "COMPLETE", "FAIL"]))
    if level < 5:
        facet: dict[str, object] = {"dataSource": "sftp", "filename": name, "created": instant(0)}
        if kind != "START":
            facet |= {
                "transforms": [],
                "dataSink": draw(st.none() | st.sampled_from(SINKS)),
                "finalState": "COMPLETE" if kind == "COMPLETE" else "ERROR",
                "completed": instant(at_ms),
            }
        return sent_event(did, kind, at_ms, parents=parents, facet=facet, inputs=[], outputs=[])
    inputs = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    outputs = draw(st.lists(st.sampled_from(SINKS), max_size=2, unique=True))
    return sent_event(did, kind, at_ms, parents=parents[:1], facet=None, inputs=inputs, outputs=outputs)


class Flush(NamedTuple):
    """Everything is applied."""


class Work(NamedTuple):
    """One projection does so many steps, and its process is killed then."""

    name: str
    steps: int


def histories(family: dict[str, list[str]]) -> st.SearchStrategy[list[tuple[Kind, bytes] | Flush | Work]]:
    """What is sent, and what is done with it in between."""
    worked = st.builds(Work, st.sampled_from(["layout", "index", "catalog", "archive"]), st.integers(1, 3))
    return st.lists(st.one_of(*[sendings(family)] * 4, st.just(Flush()), worked), min_size=3, max_size=16)


QUERIES = st.builds(
    Query,
    did=st.none() | st.sampled_from(DIDS),
    parent_did=st.none() | st.none() | st.sampled_from([*DIDS, DIDS[1].upper()]),
    filename=st.none() | st.none() | st.sampled_from([*NAMES, "?.csv", "a*"]),
    data_source=st.none() | st.none() | st.sampled_from(["sftp", "file//in/a.csv"]),
    data_sink=st.none() | st.none() | st.sampled_from(SINKS),
    final_state=st.none() | st.just(FinalState.ERROR),
    annotations=st.just({}) | st.just({"customer": "x"}),
    since_ms=st.none() | st.just(START_MS + 1),
    oldest_first=st.booleans(),
)


class Model:
    """All that was accepted, and what follows from it, by the plainest code."""

    def __init__(self, sent: Iterable[tuple[Kind, bytes]]) -> None:
        self.events = [
            event
            for kind, body in sent
            if kind is Kind.OPENLINEAGE
            if isinstance(event := decode_event(body), RunEvent)
        ]
        arrays = [body for kind, body in sent if kind is Kind.PROVENANCE]
        loose = [record for body in arrays for record in decode_records(body, system_name=SYSTEM)]
        loose += fold(self.events, system_name=SYSTEM)
        self.records = list(merge_all(loose))
        self.parents: defaultdict[str, set[str]] = defaultdict(set)
        for record in loose:
            if record.parent_did:
                self.parents[record.did].add(record.parent_did)
        for event in self.events:
            self.parents[event.run.runId].update(parents_of(event))
        begun = {event.run.runId for event in self.events}
        self.open = {did for did in begun if self._is_open(did)}
        self.inputs: defaultdict[str, set[str]] = defaultdict(set)
        for event in self.events:
            self.inputs[event.run.runId].update(one.name.rpartition("/")[2] for one in event.inputs or ())

    def _is_open(self, did: str) -> bool:
        """Whether it began after its last end."""
        own = [event for event in self.events if event.run.runId == did]
        ends = [event.eventTime for event in own if event.eventType != "START"]
        return not ends or max((e.eventTime for e in own if e.eventType == "START"), default="") > max(ends)

    def answers(self, query: Query) -> set[tuple[object, ...]]:
        return {record_key(record) for record in self.records if self._meets(record, query)}

    def _meets(self, record: ProvenanceRecord, query: Query) -> bool:
        named = any(self._is_called(one, query.filename or "") for one in self.records)
        checks = [
            query.did is None or record.did == query.did,
            query.parent_did is None or record.parent_did == query.parent_did.lower(),
            query.filename is None
            or self._is_called(record, query.filename)
            or (not named and self._matches(record.filename, query.filename)),
            query.data_source is None or record.data_source == query.data_source,
            query.data_sink is None or record.data_sink == query.data_sink,
            query.final_state is None or record.final_state in query.final_state,
            query.annotations.items() <= (record.annotations or {}).items(),
            query.since_ms is None or record.completed >= query.since_ms,
        ]
        return all(checks)

    def _is_called(self, record: ProvenanceRecord, name: str) -> bool:
        return name == record.filename or name in self.inputs[record.did]

    @staticmethod
    def _matches(name: str, pattern: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return any(Model._matches(name[at:], pattern[1:]) for at in range(len(name) + 1))
        return bool(name) and pattern[0] in {"?", name[0]} and Model._matches(name[1:], pattern[1:])

    def ancestors(self, did: str) -> set[str]:
        return self._walk(did, self.parents)

    def descendants(self, did: str) -> set[str]:
        children: defaultdict[str, set[str]] = defaultdict(set)
        for child, parents in self.parents.items():
            for parent in parents:
                children[parent].add(child)
        return self._walk(did, children)

    @staticmethod
    def _walk(did: str, edges: defaultdict[str, set[str]]) -> set[str]:
        reached, waiting = {did}, [did]
        while waiting:
            for further in edges[waiting.pop()] - reached:
                reached.add(further)
                waiting.append(further)
        return reached - {did}


def check_answers(place: str | Path, model: Model, queries: list[Query]) -> None:
    lineage = Lineage.open(place)
    for query in queries:
        keys = [record_key(record) for record in lineage.find(query)]
        assert len(keys) == len(set(keys))
        assert set(keys) == model.answers(query)
        assert lineage.stats(query).total_records == len(keys)
    by_sink = Counter(record.data_sink for record in model.records)
    assert lineage.sums(["sink"]) == {(sink,): count for sink, count in by_sink.items()}
    for did in sorted({record.did for record in model.records}):
        journey = lineage.trace(did)
        assert {file.did for file in journey.ancestors()} == model.ancestors(did)
        assert {file.did for file in journey.descendants()} == model.descendants(did)


@contextlib.contextmanager
def home_in(folder: Path) -> Iterator[Settings]:
    given = {
        "home": folder / "home",
        "root": folder / "root",
        "system_name": SYSTEM,
        "provenance_enabled": True,
        "provenance_annotations_allowed": "customer",
        "runner": "none",
    }
    settings = Settings.load(given, env={})
    with contextlib.closing(Journal(settings.home)) as journal:
        agree(journal, settings)
    yield settings


def open_dids(home: Path) -> set[str]:
    with contextlib.closing(Journal(home)) as journal, IndexReader.open(home, journal) as index:
        return {file.did for file in index.open_files()}


def work(settings: Settings, what: Work) -> None:
    with contextlib.closing(Journal(settings.home)) as journal:
        projections, _ = open_projections(journal, settings, what.name)
        for projection in projections:
            for _ in range(what.steps):
                projection.step()


@hypothesis_settings(max_examples=40, deadline=None, phases=[Phase.generate])
@given(families().flatmap(histories), st.lists(QUERIES, min_size=3, max_size=6))
def test_a_home_its_root_and_its_export_answer_what_follows_from_the_accepted_events(
    history: list[tuple[Kind, bytes] | Flush | Work], queries: list[Query]
) -> None:
    with tempfile.TemporaryDirectory() as name, home_in(Path(name)) as settings:
        folder, sent = Path(name), list[tuple[Kind, bytes]]()
        for step in history:
            if isinstance(step, Flush):
                flush(settings)
            elif isinstance(step, Work):
                work(settings, step)
            else:
                with contextlib.closing(Journal(settings.home)) as journal:
                    journal.append(*step, SYSTEM)
                sent.append(step)
        model = Model(sent)
        check_answers(settings.home, model, queries)
        assert open_dids(settings.home) == model.open, [
            (e.run.runId[-1], e.eventType.name, e.eventTime) for e in model.events
        ]
        flush(settings)
        assert open_dids(settings.home) == model.open, [
            (e.run.runId[-1], e.eventType.name, e.eventTime) for e in model.events
        ]
        check_answers(settings.home, model, queries)
        if not model.records:
            return
        check_answers(settings.root, model, queries)
        exported = folder / "export"
        export(settings.root, open_destination(exported))
        check_answers(exported.as_uri(), model, queries)
