"""What a home, its root and its export answer is what a naive model of the accepted events says."""

from __future__ import annotations

import contextlib
import itertools
import json
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from events import RUN_EVENT, event as event_of
from hypothesis import Phase, given, settings as hypothesis_settings, strategies as st
from keeping import settings_in

from waybill.exporter import Query, export, open_destination
from waybill.exporter.query import InvalidQueryError, cursor_of
from waybill.facets import (
    FinalState,
    ProvenanceRecord,
    decode_event,
    decode_records,
    fold,
    merge_all,
    parents_of,
)
from waybill.facets.event import RunEvent
from waybill.lineage import Journey, Lineage
from waybill.lineage.drawing import outline
from waybill.transport import Journal, Kind, flush
from waybill.transport.config import agree
from waybill.transport.runner.projection import open_projections

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from waybill.transport import Settings

START_MS = 1_769_860_800_000
HOUR_MS = 3_600_000
SYSTEM = "edge"
DIDS = [f"01a1fd6a-9e75-7d78-870f-00000000000{digit}" for digit in "1234567"]
NAMES = ["a.csv", "b.csv", "a[1].csv"]
SINKS = ["lake", "report"]
LEVELS = list(range(len(DIDS)))


def instant(at_ms: int) -> str:
    return f"2026-01-31T{12 + at_ms // HOUR_MS:02}:00:{at_ms // 1_000 % 60:02}.{at_ms % 1_000:03}Z"


def sent_records(records: Iterable[dict[str, object]]) -> Sent:
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
) -> Sent:
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
    said = event_of(
        did,
        kind,
        instant(at_ms),
        job=f"{SYSTEM}/work",
        facets=facets,
        inputs=[f"file//in/{name}" for name in inputs],
        outputs=[f"file//out/{name}" for name in outputs],
        schemaURL=RUN_EVENT,
    )
    return Kind.OPENLINEAGE, said


Sent = tuple[Kind, bytes]


@st.composite
def families(draw: st.DrawFn) -> dict[str, list[str]]:
    """The parents of each file: mostly earlier ones; now and then any, so that there are circles."""
    found = {}
    for level, did in enumerate(DIDS):
        some = st.sampled_from(DIDS[:level] or DIDS) if draw(st.integers(0, 9)) else st.sampled_from(DIDS)
        found[did] = draw(st.lists(some, max_size=3, unique=True))
    return found


@st.composite
def sendings(draw: st.DrawFn, family: dict[str, list[str]]) -> Sent:
    """Records of DeltaFi, or an event of a tracked file (two to four) or of a run (five and six).

    Each names all parents or, of a joined file, only the first; which one that is an end may change.
    """
    level = draw(st.sampled_from(LEVELS))
    did, at_ms = DIDS[level], draw(st.sampled_from([0, 1, 1_000, HOUR_MS]))
    parents = family[did][: draw(st.sampled_from([1, 3]))]
    kind = draw(st.sampled_from(["START", "COMPLETE", "FAIL"]))
    if kind != "START":
        parents = draw(st.permutations(parents))
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
            "finalState": draw(st.sampled_from(["COMPLETE", "ERROR", "SPLIT"])),
            "created": START_MS,
            "completed": START_MS + at_ms,
            "annotations": draw(st.dictionaries(st.just("customer"), st.sampled_from(["x", "y"]))),
        }
        return sent_records([record])
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


class Work(NamedTuple):
    """One projection does so many steps, and its process is killed then."""

    name: str
    steps: int


@st.composite
def histories(draw: st.DrawFn) -> list[Sent | Work]:
    """What is sent, and what is done with it in between."""
    sent = draw(st.lists(sendings(draw(families())), min_size=6, max_size=20))
    worked = st.builds(Work, st.sampled_from(["layout", "index", "keys", "archive"]), st.integers(1, 3))
    return [step for one in sent for step in (one, draw(st.none() | worked)) if step is not None]


QUERIES = st.builds(
    Query,
    did=st.none() | st.sampled_from(DIDS),
    parent_did=st.none() | st.none() | st.sampled_from([*DIDS, DIDS[1].upper()]),
    filename=st.none() | st.none() | st.sampled_from([*NAMES, "?.csv", "a*"]),
    data_source=st.none() | st.none() | st.sampled_from(["sftp", "file:/in/a.csv"]),
    input_dataset=st.none() | st.none() | st.sampled_from(["file:/in/a.csv", "file:/in/b.csv"]),
    data_sink=st.none() | st.none() | st.sampled_from(SINKS),
    final_state=st.none() | st.just(FinalState.ERROR),
    annotations=st.just({}) | st.just({"customer": "x"}),
    since_ms=st.none() | st.just(START_MS + 1),
    oldest_first=st.booleans(),
)


def told_in(sent: Iterable[Sent]) -> Iterator[ProvenanceRecord]:
    """The records that entries give, before those of one path are merged."""
    runs: defaultdict[str, list[RunEvent]] = defaultdict(list)
    for at, (kind, body) in enumerate(sent):
        if kind is Kind.PROVENANCE:
            yield from decode_records(body, system_name=SYSTEM)
            continue
        event = decode_event(body)
        assert isinstance(event, RunEvent)
        has_facet = event.run.facets is not None and event.run.facets.delta_file is not None
        runs[str(at) if has_facet else event.run.runId].append(event)
    for events in runs.values():
        yield from fold(events, system_name=SYSTEM)


class Model:
    """What follows from what was accepted, by the plainest code."""

    def __init__(self, sent: Sequence[Sent]) -> None:
        decoded = [decode_event(body) for kind, body in sent if kind is Kind.OPENLINEAGE]
        events = [event for event in decoded if isinstance(event, RunEvent)]
        self.records = list(merge_all(told_in(sent)))
        self.parents: defaultdict[str, set[str]] = defaultdict(set)
        self.inputs: defaultdict[str, set[str]] = defaultdict(set)
        for record in self.records:
            # Of the first parent it is the record that tells, so a later event may change it.
            self.parents[record.did].update([record.parent_did] if record.parent_did else [])
        for event in events:
            self.inputs[event.run.runId].update(one.text for one in event.inputs or ())
            self.parents[event.run.runId].update(set(parents_of(event)[1:]) - {event.run.runId})
        runs = {
            event.run.runId: [one for one in events if one.run.runId == event.run.runId] for event in events
        }
        self.open = {did for did, own in runs.items() if self._is_open(own)}
        for did in self.open:
            begun = next(event for event in runs[did] if event.eventType == "START")
            self.parents[did].update(parents_of(begun)[:1])

    @staticmethod
    def _is_open(own: Sequence[RunEvent]) -> bool:
        """Whether a run did not end, or a START that is not its first one came after its last end."""
        ends = [event.eventTime for event in own if event.eventType != "START"]
        starts = {event.eventTime for event in own if event.eventType == "START"}
        return not ends or (len(starts) > 1 and max(starts) > max(ends))

    def answers(self, query: Query) -> list[ProvenanceRecord]:
        return [record for record in self.records if self._meets(record, query)]

    def missing(self, sink: str, query: Query) -> tuple[set[str], set[str]]:
        """The files that did not get to a sink: those with a record that meets a query, and open ones."""
        at_sink = Query(data_sink=sink, final_state=FinalState.COMPLETE)
        there = {record.did for record in self.answers(at_sink)}
        found = self.answers(query)
        opened = {did for did in self.open if did in DIDS[2:5] and query.data_source in {None, "sftp"}}
        arrived = {record.did for record in found}
        left = {did for did in arrived | opened if not ({did} | self.descendants(did)) & there}
        split = {record.did for record in self.records if record.final_state == FinalState.SPLIT}
        names = {
            (record.did, record.filename, record.data_source)
            for record in self.records
            if record.did not in split
        }
        work = {
            record.did
            for record in found
            if record.parent_did not in {None, record.did}
            and (record.parent_did, record.filename, record.data_source) in names
        }
        return (left & arrived) - work, (left & opened) - arrived

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
            query.input_dataset is None or query.input_dataset in self.inputs[record.did],
        ]
        return all(checks)

    def _is_called(self, record: ProvenanceRecord, name: str) -> bool:
        return name == record.filename or f"file:/in/{name}" in self.inputs[record.did]

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


def check_answers(place: str | Path, model: Model, queries: Iterable[Query]) -> None:
    lineage = Lineage.open(place)
    for query in queries:
        found, wanted = lineage.find(query), model.answers(query)
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
        stats, opened = lineage.stats(query), []
        assert stats.total_records == len(wanted)
        with contextlib.suppress(InvalidQueryError):  # only what has ended meets some conditions
            opened = lineage.open_files(query)
        assert stats.unended_files == len(opened)
    by_sink = Counter(record.data_sink for record in model.records)
    assert lineage.sums(["sink"]) == {(sink,): count for sink, count in by_sink.items()}
    assert {file.did for file in lineage.open_files()} == model.open
    for sink, query in itertools.product(sorted(filter(None, by_sink)), [Query(), Query(data_source="sftp")]):
        missing = msgspec.structs.replace(query, missing_sink=sink)
        ended, unended = model.missing(sink, query)
        found = lineage.find(missing)
        assert sorted(record.did for record in found) == sorted(ended)
        if len(found) > 1:
            rest = lineage.find(msgspec.structs.replace(missing, after=cursor_of(found[0])))
            assert rest == found[1:]
        assert {file.did for file in lineage.open_files(missing)} == unended
        assert lineage.count(missing) == len(ended | unended)
    for did in sorted({record.did for record in model.records} | model.open):
        journey = lineage.trace(did)
        assert {file.did for file in journey.ancestors()} == model.ancestors(did)
        assert {file.did for file in journey.descendants()} == model.descendants(did)
        for file in journey.files.values():
            assert file.parents == tuple(sorted(model.parents[file.did]))
            assert (file.open is not None) == (file.did in model.open)
        assert {line.of.did for line in outline(journey, folded_from=None)} == journey.files.keys()
        assert Journey.of(journey.told()) == journey


@contextlib.contextmanager
def home_in(folder: Path) -> Iterator[Settings]:
    given = {
        "root": folder / "root",
        "system_name": SYSTEM,
        "provenance_enabled": True,
        "provenance_annotations_allowed": "customer",
    }
    settings = settings_in(folder).with_values(given, "tests")
    with contextlib.closing(Journal(settings.home)) as journal:
        agree(journal, settings)
    yield settings


def work(settings: Settings, what: Work) -> None:
    with contextlib.closing(Journal(settings.home)) as journal:
        projections, _ = open_projections(journal, settings, what.name)
        for projection in projections:
            for _ in range(what.steps):
                projection.step()


def take(step: Sent | Work, settings: Settings) -> None:
    if isinstance(step, Work):
        work(settings, step)
        return
    with contextlib.closing(Journal(settings.home)) as journal:
        journal.append(*step, SYSTEM)


@hypothesis_settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(histories(), st.lists(QUERIES, min_size=2, max_size=4))
def test_a_home_its_root_and_its_export_answer_what_follows_from_the_accepted_events(
    steps: list[Sent | Work], queries: list[Query]
) -> None:
    with tempfile.TemporaryDirectory() as name, home_in(Path(name)) as settings:
        for step in steps:
            take(step, settings)
        # A repeat is the entry that it repeats.
        model = Model(list(dict.fromkeys(step for step in steps if not isinstance(step, Work))))
        check_answers(settings.home, model, queries)
        flush(settings)
        exported = Path(name) / "export"
        export(settings.root, open_destination(exported))
        for place in (str(settings.root), exported.as_uri()) if model.records else ():
            check_answers(place, model, queries[:1])


def test_a_file_that_is_told_of_long_after_it_began_got_where_its_children_did(tmp_path: Path) -> None:
    did, child = DIDS[2], DIDS[5]
    facet: dict[str, object] = {"dataSource": "sftp", "filename": "a.csv", "created": instant(0)}
    with home_in(tmp_path) as settings:
        begun = sent_event(did, "START", 0, parents=[], facet=facet, inputs=[], outputs=[])
        ended = sent_event(child, "COMPLETE", 1, parents=[did], facet=None, inputs=[], outputs=["lake"])
        for sent in (begun, ended):
            take(sent, settings)
        check_answers(settings.home, Model([begun, ended]), [])
        [file] = Lineage.open(settings.home).open_files()
        assert (file.began_ms, file.received_ms > START_MS) == (START_MS, True)
        assert Lineage.open(settings.home).open_files(Query(created_until_ms=START_MS + 1)) == [file]
