"""The graph of datasets and jobs: what depends on what, against a naive model of the same events."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import example, given, settings as hypothesis_settings, strategies as st
from keeping import at_ms, dataset, index, keep, keep_filed, ran, said_of, settings_in

from waybill.lineage import Lineage
from waybill.lineage.graph import shown
from waybill.transport import NotFoundError, Settings, Tracker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from waybill.lineage.graph import Dependencies, Reach

INPUTS = 50_000


def names(reach: Reach) -> list[tuple[int, str]]:
    return [(one.distance, shown(one.node)) for one in reach.nodes]


def asked(home: Path, name: str, *, up: int | None = None, down: int | None = None) -> Dependencies:
    return Lineage.open(home).dependencies(name, up=up, down=down)


class Said(NamedTuple):
    """A run: what its job reads and writes, by number, two names of one dataset, and two columns."""

    job: int
    reads: frozenset[int]
    writes: frozenset[int]
    same: frozenset[int]
    column: tuple[int, int] | None
    is_begun: bool
    """Whether an event of its own says what it reads."""

    def events(self, minute: int) -> Iterable[dict[str, Any]]:
        reads, writes = ([f"d/d{number}" for number in some] for some in (self.reads, self.writes))
        job, run = f"j/j{self.job}", str(minute)
        if self.is_begun:
            yield ran(job, reads, [], minute, "START", run=run)
        yield ran(job, [] if self.is_begun else reads, writes, minute, run=run)
        for one, other in combinations(sorted(self.same), 2):
            yield said_of(dataset(f"d{one}", "d", same=[f"d/d{other}"]))
        if self.column is not None:
            near, far = self.column
            yield said_of(dataset(f"d{far}", "d", derived={"x": [(f"d{near}", "x")]}))


NUMBERS = st.integers(0, 4)
SOME = st.frozensets(NUMBERS, max_size=2)
COLUMN = st.none() | st.tuples(NUMBERS, NUMBERS)
SAID = st.lists(
    st.builds(Said, st.integers(0, 2), SOME, SOME, SOME, COLUMN, st.booleans()), min_size=1, max_size=6
)


class Model:
    """The graph as sets: each dataset is the least number of those that are the same."""

    def __init__(self, said: Sequence[Said]) -> None:
        self.one = list(range(5))
        for _ in self.one:
            for pair in (sorted(each.same) for each in said if len(each.same) == 2):
                least = min(self.one[number] for number in pair)
                self.one = [
                    least if group in [self.one[number] for number in pair] else group for group in self.one
                ]
        self.runs = [
            (f"j/j{each.job}", self.datasets(each.reads), self.datasets(each.writes)) for each in said
        ]
        self.flows = {(one, job) for job, reads, _ in self.runs for one in reads}
        self.flows |= {(job, one) for job, _, writes in self.runs for one in writes}
        columns = [each.column for each in said if each.column is not None]
        self.columns = {tuple(self.name(f"d/d{number}.x") for number in pair) for pair in columns}
        self.flows |= {(self.name(f"d/d{near}"), self.name(f"d/d{far}")) for near, far in columns}

    def datasets(self, numbers: Iterable[int]) -> set[str]:
        return {self.name(f"d/d{one}") for one in numbers}

    def name(self, text: str) -> str:
        """A name of a dataset or its column, by the name that stands for all."""
        return text if text.startswith("j/") else f"d/d{self.one[int(text[3])]}{text[4:]}"

    def reached(
        self, edges: Iterable[tuple[str, ...]], start: str, depth: int | None, *, down: bool
    ) -> dict[str, int]:
        """A breadth-first search, in which each dataset comes to a job of its own."""
        ends = [edge if down else edge[::-1] for edge in edges]
        away, frontier = {(start, ""): 0}, [(start, "")]
        for near, entry in frontier:
            for far in sorted({end for begin, end in ends if begin == near}):
                if entry and not self.is_way(*((entry, near, far) if down else (far, near, entry))):
                    continue
                place = (far, near if far.startswith("j/") else "")
                if place not in away and (depth is None or away[near, entry] < depth):
                    away[place] = away[near, entry] + 1
                    frontier.append(place)
        nearest: dict[str, int] = {}
        for (name, _), distance in away.items():
            nearest.setdefault(name, distance)
        return {name: distance for name, distance in nearest.items() if distance}

    def is_way(self, source: str, job: str, target: str) -> bool:
        """Whether a run of a job may have read the one and written the other."""
        runs = [(reads, writes) for name, reads, writes in self.runs if name == job]
        pairs = {(read, written) for reads, writes in runs for read in reads for written in writes}
        is_known = source in {read for read, _ in pairs} and target in {written for _, written in pairs}
        return not is_known or (source, target) in pairs


def reached(home: Path, name: str, depth: int | None, *, down: bool) -> dict[str, int]:
    """By name, how many edges away a node is; each is there once, and each edge."""
    found = asked(home, name, up=depth, down=depth)
    reach: Reach = found.downstream if down else found.upstream
    away = {name: distance for distance, name in names(reach)}
    assert len(away) == len(reach.nodes)
    edges = [(edge.source, edge.kind, edge.target) for edge in reach.edges]
    assert len(set(edges)) == len(edges)
    return away


# Two runs of a job, of which the one's inputs do not get to the other's outputs; two circles, and two names.
RUNS_OF_ONE_JOB = [
    Said(0, frozenset({0}), frozenset({1}), frozenset(), (0, 1), is_begun=True),
    Said(0, frozenset({2}), frozenset({3}), frozenset({3, 4}), (1, 0), is_begun=True),
    Said(1, frozenset({4}), frozenset({2}), frozenset(), None, is_begun=False),
]


@hypothesis_settings(max_examples=6)
@example(RUNS_OF_ONE_JOB, 0, None, random.Random(0))  # noqa: S311 - an order, no secret
@given(SAID, st.integers(0, 12), st.none() | st.integers(1, 2), st.randoms(use_true_random=False))
def test_the_graph_is_the_model_s_in_any_order_and_wherever_its_events_are(
    tmp_path_factory: pytest.TempPathFactory,
    said: list[Said],
    filed: int,
    depth: int | None,
    chance: random.Random,
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("shapes"))
    told = [event for minute, each in enumerate(said) for event in each.events(minute)] * 2
    chance.shuffle(told)
    keep_filed(settings, told, filed)
    model = Model(said)
    starts = {f"d/d{number}" for each in said for number in each.reads | each.writes}
    starts |= {f"d/d{number}.x" for each in said for number in each.column or ()}
    starts |= {f"j/j{each.job}" for each in said if each.reads or each.writes}

    def answer() -> dict[tuple[str, bool], dict[str, int]]:
        return {
            (start, down): reached(settings.home, start, depth, down=down)
            for start in sorted(starts)
            for down in (True, False)
        }

    answers = answer()
    for (start, down), away in answers.items():
        edges = model.columns if start.endswith(".x") else model.flows
        found = {model.name(name): distance for name, distance in away.items()}
        assert len(found) == len(away)
        assert found == model.reached(edges, model.name(start), depth, down=down)
    for path in settings.home.glob("index.db*"):
        path.unlink()
    index(settings)
    assert answers == answer()


def source(name: str, field: str | None = None) -> dict[str, object]:
    told: dict[str, object] = {"namespace": "lake", "name": name, "type": "DATASET"}
    return told if field is None else told | {"field": field}


ALL_ROWS = (
    "SELECT * FROM node ORDER BY 1",
    "SELECT * FROM edge ORDER BY 1, 2, 3, 4, 5",
    "SELECT * FROM belief ORDER BY 1, 2, 3, 4, 5",
    "SELECT * FROM property ORDER BY 1, 2, 3",
    "SELECT * FROM job_run ORDER BY 1, 2",
)
FACETS: tuple[dict[str, Any], ...] = (
    {"types": {"a": "string"}, "version": {"datasetVersion": "1"}},
    {"types": {"b": "string"}, "documentation": {"description": "other"}},
    {"derived": {"a": [("in", "x")]}},
    {"lineage": {"inputs": [source("in")], "fields": {"a": {"inputs": [source("in", "y")]}}}},
    {"dataSource": {"uri": "s3://lake"}, "owners": ["team", "ops"]},
    {"same": ["hive/t"], "lineage": 7},
    {},
)


@hypothesis_settings(max_examples=4)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["START", "COMPLETE", "FAIL"]), st.integers(0, 200),
            st.sampled_from(FACETS), st.sampled_from(FACETS),
        ),
        min_size=1, max_size=8,
    ),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_in_any_order_and_repeated_events_give_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, said: list[Any], chance: random.Random
) -> None:
    told = [
        ran(
            f"etl/j{job}",
            [dataset("in", **read)],
            [dataset(f"out-{job}", **written)],
            minute,
            kind,
            run=f"run-{number % 3}",
        )
        for number, (job, kind, minute, read, written) in enumerate(said)
    ]
    rows = []
    for repeats in (1, 3):
        settings = settings_in(tmp_path_factory.mktemp("rows"))
        left = told * repeats
        chance.shuffle(left)
        half = chance.randint(0, len(left))
        for some in (left[:half], left[half:]):
            keep(settings.home, some)
            index(settings)
        with closing(sqlite3.connect(settings.home / "index.db")) as database:
            rows.append([database.execute(statement).fetchall() for statement in ALL_ROWS])
    assert rows[0] == rows[1]


RUNS: dict[str, tuple[list[tuple[str, int]], str, tuple[int, int | None]]] = {
    "ended": ([("START", 1), ("COMPLETE", 5)], "COMPLETE", (1, 5)),
    "begun": ([("START", 1)], "RUNNING", (1, None)),
    "failed": ([("START", 1), ("FAIL", 5), ("COMPLETE", 6)], "ERROR", (1, 5)),
    "again": ([("START", 1), ("FAIL", 5), ("START", 7), ("COMPLETE", 9)], "COMPLETE", (7, 9)),
    "going-on": ([("START", 1), ("FAIL", 5), ("START", 7)], "RUNNING", (7, None)),
}
"""By job, the events of its last run, its state, and when that began and ended."""


def test_a_job_and_what_it_writes_show_how_it_ran_last(home: Path) -> None:
    for job, (events, *_) in RUNS.items():
        keep(home, [ran(f"etl/{job}", [], [f"lake/{job}"], 0, "FAIL")])
        keep(home, [ran(f"etl/{job}", [], [], minute, kind, run=job) for kind, minute in events])
    for job, (_, state, (began, ended)) in RUNS.items():
        for name in (f"etl/{job}", f"lake/{job}"):
            run = asked(home, name).last_run
            assert run is not None
            assert (run.run, run.state, run.started_ms) == (job, state, at_ms(began))
            assert run.ended_ms == (None if ended is None else at_ms(ended))


def test_a_name_that_nothing_or_several_have_is_an_error(home: Path) -> None:
    keep(home, [ran("etl/a", [], ["lake/out", "pond/out"])])
    with pytest.raises(NotFoundError, match="give one of lake/out, pond/out"):
        asked(home, "out")
    began_s = time.process_time()
    for nothing in ("nothing", "%", "a." * 30_000, "/" * 60_000, "lake/out." * 450):
        with pytest.raises(NotFoundError, match="no dataset, column or job has the name"):
            asked(home, nothing)
    assert time.process_time() - began_s < 5


def test_files_alone_have_no_graph(settings: Settings) -> None:
    keep_filed(settings, [ran("etl/a", [], ["lake/out"])])
    with pytest.raises(NotFoundError, match="ask the home that filed them"):
        Lineage.open(settings.root).dependencies("lake/out")


def test_two_datasets_that_files_reach_by_one_sink_stay_two(settings: Settings) -> None:
    places = {name: f"s3://lake/{name}" for name in ("raw", "clean")}
    with Tracker(settings=settings) as tracker:
        for name, place in places.items():
            with tracker.file(f"{name}.csv", data_source=f"from-{name}", data_sinks={"lake": place}) as file:
                file.egress("lake")
    for name, place in places.items():
        nearest = names(asked(settings.home, place).upstream)[0]
        assert nearest == (1, f"{settings.system_name}/from-{name}")


def test_where_a_job_says_what_goes_where_nothing_else_does(home: Path) -> None:
    """The facet `lineage` is believed before the inputs and outputs of the event."""
    outputs = [
        dataset("left", lineage={"inputs": [source("a")]}),
        dataset("right", lineage={"inputs": [source("b")]}),
        dataset("constant", lineage={"inputs": []}),
        dataset("rest"),
    ]
    keep(home, [ran("etl/both", ["lake/a", "lake/b"], outputs), ran("etl/more", ["sftp/in"], ["lake/a"])])

    def ends(name: str, *, down: bool = False) -> set[str]:
        found = asked(home, name)
        return {text for _, text in names(found.downstream if down else found.upstream)}

    assert ends("lake/left") == {"etl/both", "lake/a", "etl/more", "sftp/in"}
    assert ends("lake/right") == {"etl/both", "lake/b"}
    assert ends("lake/constant") == {"etl/both"}
    assert ends("lake/rest") == {"etl/both", "lake/a", "lake/b", "etl/more", "sftp/in"}
    assert ends("lake/a", down=True) == {"etl/both", "lake/left", "lake/rest"}
    assert ends("lake/b", down=True) == {"etl/both", "lake/right", "lake/rest"}
    assert ends("etl/both", down=True) == {"lake/left", "lake/right", "lake/constant", "lake/rest"}
    assert ends("etl/both") == {"lake/a", "lake/b", "etl/more", "sftp/in"}


def test_of_what_is_said_of_columns_the_surest_counts(home: Path) -> None:
    how = {"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True}
    hashed = source("in", "email") | {"transformations": [how]}
    users = dataset(
        "users", derived={"user": [("in", "guess")]}, lineage={"fields": {"user": {"inputs": [hashed]}}}
    )
    keep(home, [ran("etl/mask", [], [users], run="r")])
    (edge,) = asked(home, "lake/users.user").upstream.edges
    assert (edge.source.column, edge.analyzer, edge.confidence) == ("email", "lineage", 1.0)
    assert (edge.transformations, edge.masking) == (("DIRECT/TRANSFORMATION",), True)
    assert (edge.job and edge.job.name, edge.run) == ("mask", "r")
    assert asked(home, "lake/users", up=1).upstream.edges[0].analyzer == "event"


def test_a_renamed_table_comes_from_the_earlier_one_and_what_has_its_name_since_does_not(home: Path) -> None:
    before = {"namespace": "lake", "name": "old"}
    change = {"lifecycleStateChange": "RENAME", "previousIdentifier": before}
    keep(
        home,
        [
            ran("etl/load", ["sftp/in"], ["lake/old"], 1),
            ran("etl/rename", [], [dataset("new", lifecycleStateChange=change)], 2),
            ran("etl/again", ["lake/new"], ["lake/report"], 3),
        ],
    )
    assert [name for _, name in names(asked(home, "lake/report").upstream)] == [
        "etl/again", "lake/new", "etl/rename", "lake/old", "etl/load", "sftp/in",
    ]  # fmt: skip


def test_as_of_an_instant_what_was_told_later_is_not_there(home: Path) -> None:
    keep(
        home,
        [
            ran("etl/load", ["sftp/in"], ["lake/raw"], 1, "START", run="a"),
            ran("etl/load", [], [], 5, run="a"),
            ran("etl/load", ["sftp/more"], ["lake/raw"], 7, "START", run="b"),
            ran("etl/load", [], [], 8, "FAIL", run="b"),
            ran("etl/sum", ["lake/raw"], ["lake/report"], 9),
        ],
    )

    def as_of(minute: int) -> tuple[set[str], set[str], str | None]:
        found = Lineage.open(home).dependencies("lake/raw", up=None, down=None, as_of_ms=at_ms(minute))
        sides = [{name for _, name in names(reach)} for reach in (found.upstream, found.downstream)]
        return sides[0], sides[1], None if found.last_run is None else found.last_run.state

    assert as_of(3) == ({"etl/load", "sftp/in"}, set(), "RUNNING")
    assert as_of(6) == ({"etl/load", "sftp/in"}, set(), "COMPLETE")
    assert as_of(8) == ({"etl/load", "sftp/in", "sftp/more"}, set(), "ERROR")
    assert as_of(10)[1] == {"etl/sum", "lake/report"}


def test_what_analyzers_find_is_in_the_graph_and_a_surer_word_counts(settings: Settings) -> None:
    query = "INSERT INTO lake.report SELECT customer, sum(amount) AS total FROM lake.orders GROUP BY customer"
    orders = dataset("lake.orders", types={"customer": "string", "amount": "double"})

    def event(job: str, minute: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - see `dataset`
        return ran(job, [orders], [dataset("lake.report", **more)], minute, sql=query, dialect="spark")

    def sources() -> list[str]:
        return [shown(edge.source) for edge in asked(settings.home, "lake.report.total", up=1).upstream.edges]

    lineage = keep_filed(settings, [event("etl/sum", 1)])
    edge = lineage.dependencies("lake.report.total").upstream.edges[0]
    assert (shown(edge.source), edge.kind, edge.analyzer) == ("lake/lake.orders.amount", "derive", "sql")
    assert edge.transformations == ("DIRECT/AGGREGATION",)
    assert (edge.job and edge.job.name, edge.run, edge.first_ms) == ("sum", "etl/sum at 1", at_ms(1))
    used = {one.name: one.edges for one in lineage.analyzers().analyzers}
    assert used["sql"] > 1
    assert (used["event"], used["columnLineage"], used["generic"]) == (3, 0, 0)

    keep(settings.home, [event("etl/sum", 0, derived={"total": [("exact", "x")]})])
    for _ in range(2):  # as the tail, and in the index
        assert sources() == ["lake/exact.x"]
        index(settings)
    keep_filed(settings, [event("etl/sum again", 2)])
    assert set(sources()) == {"lake/exact.x", "lake/lake.orders.amount", "lake/lake.report"}


def test_what_starts_a_job_waits_for_it_or_owns_it_and_the_versions_of_a_dataset_are_beside_it(
    home: Path,
) -> None:
    """The job's owner and the dataset's are those that were named last, whatever comes in whichever order."""

    def train(minute: int, owner: str, version: str) -> dict[str, Any]:
        model = dataset("models/churn", version={"datasetVersion": version}, owners=[owner])
        jobs = {name: {"job": {"namespace": "ml", "name": name}} for name in ("snapshot", "predict", "train")}
        facets = {
            "parent": {"run": {"runId": "p"}, "job": {"namespace": "airflow", "name": "nightly"}},
            "jobDependencies": {
                "upstream": [jobs["snapshot"], jobs["train"]],
                "downstream": [jobs["predict"], jobs["train"]],
            },
        }
        owned = model["facets"]["ownership"]
        return ran("ml/train", [], [model], minute, run="t", facets=facets, ownership=owned)

    keep(home, [train(7, "team:ml", "v2"), train(1, "team:old", "v1"), train(9, "team:ml", "v3")])

    def related(name: str, as_of_ms: int | None = None) -> list[tuple[str, str, str]]:
        found = Lineage.open(home).dependencies(name, as_of_ms=as_of_ms)
        return [
            (edge.source.name, str(edge.kind), edge.target.version or edge.target.name)
            for edge in found.related
        ]

    job = [("nightly", "start", "train"), ("snapshot", "precede", "train"), ("train", "precede", "predict")]
    loop = ("train", "precede", "train")
    assert sorted(related("ml/train")) == sorted([*job, loop, ("team:ml", "own", "train")])
    assert related("airflow/nightly") == job[:1]
    assert related("ml/predict") == job[2:]
    model = "models/churn"
    versions = [(model, "version", version) for version in ("v3", "v2", "v1")]
    assert related("lake/models/churn") == [*versions[:2], ("team:ml", "own", model), versions[2]]
    assert related("lake/models/churn", at_ms(2)) == versions[2:]


def test_the_graph_in_sql_has_each_type_of_node_and_edge(settings: Settings) -> None:
    facets: dict[str, Any] = {"version": {"datasetVersion": "7"}, "dataSource": {"uri": "s3://lake"}}
    tags = {"tags": [{"key": "tier", "value": "1"}]}
    written = dataset("out", derived={"a": [("in", "x")]}, owners=["team:sales"], tags=tags, **facets)
    keep_filed(settings, [ran("etl/daily", [dataset("raw/dt=2026-01-31", "s3://lake")], [written])])
    with closing(sqlite3.connect(settings.home / "index.db")) as database:
        kinds = dict(database.execute("SELECT kind, count(*) FROM graph_node GROUP BY kind"))
        edges = dict(database.execute("SELECT kind, count(*) FROM graph_edge GROUP BY kind"))
        loose = database.execute(
            "SELECT count(*) FROM graph_edge WHERE source NOT IN (SELECT id FROM graph_node)"
            " OR target NOT IN (SELECT id FROM graph_node)"
        ).fetchone()
    told = {"dataset": 3, "column": 2, "job": 1, "version": 1, "resource": 1, "connection": 1, "owner": 1}
    assert kinds == told | {"producer": 1, "run": 1, "namespace": 3, "concept": 8}
    assert loose == (0,)
    assert edges["parentconcept"] == sum(told.values()) + 1
    assert edges.keys() == {
        *("contain", "derive", "feed", "hold", "own", "parentconcept", "produce", "read", "run"),
        *("version", "write"),
    }  # fmt: skip


MEASURE = """
import sys, time
from pathlib import Path
from waybill.lineage import Lineage
found = Lineage.open(Path(sys.argv[1])).dependencies("etl/big", up=1, down=1)
# The peak that `getrusage` tells may be the parent's, from before this program was executed.
lines = Path("/proc/self/status").read_text().splitlines()
peak_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
print(len(found.upstream.nodes), len(found.upstream.edges), time.process_time(), peak_kib)
"""


@pytest.mark.exhaustive
def test_a_run_with_very_many_inputs_takes_bounded_time_and_memory(home: Path) -> None:
    reads = [dataset(f"in/{number}", "s3://lake") for number in range(INPUTS)]
    reads += [dataset(f"days/dt={number}", "s3://lake") for number in range(INPUTS // 10)]
    keep(home, [ran("etl/big", reads, ["lake/out"])])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(home)], capture_output=True, text=True, timeout=120, check=True
    )
    found, edges, cpu_s, memory_kib = map(float, done.stdout.split())
    assert (found, edges) == (INPUTS + 1, INPUTS + 1)
    assert cpu_s < 40
    assert memory_kib < 600 * 1024
