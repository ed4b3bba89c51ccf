"""The graph of datasets and jobs: what depends on what, against a naive model of the same events."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from events import members
from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import index, keep

from waybill.lineage import Lineage
from waybill.lineage.graph import shown
from waybill.transport import NotFoundError, Settings, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Sequence

    from waybill.lineage.graph import Dependencies, Reach


def run_event(
    run: str,
    kind: str = "COMPLETE",
    minute: int = 0,
    *,
    job: str = "etl/daily",
    reads: Sequence[Any] = (),
    writes: Sequence[Any] = (),
) -> bytes:
    at = f"2026-01-31T12:{minute:02}:00Z"
    return json.dumps(members(run, kind, at, job=job, inputs=reads, outputs=writes)).encode()


def names(reach: Reach) -> list[tuple[int, str]]:
    return [(one.distance, shown(one.node)) for one in reach.nodes]


def asked(home: Path, name: str, *, up: int | None = None, down: int | None = None) -> Dependencies:
    return Lineage.open(home).dependencies(name, up=up, down=down)


def test_two_jobs_one_after_the_other_are_a_chain(home: Path) -> None:
    keep(
        home,
        [
            run_event("a", job="etl/load", reads=["sftp/in.csv"], writes=["lake/raw"]),
            run_event("b", job="etl/sum", reads=["lake/raw"], writes=["lake/report"]),
        ],
    )
    found = asked(home, "lake/report")
    assert names(found.upstream) == [(1, "etl/sum"), (2, "lake/raw"), (3, "etl/load"), (4, "sftp/in.csv")]
    assert found.downstream.nodes == ()
    assert names(asked(home, "sum", up=1, down=1).upstream) == [(1, "lake/raw")]
    assert names(asked(home, "in.csv", down=2).downstream) == [(1, "etl/load"), (2, "lake/raw")]
    lineage = Lineage.open(home)
    assert [one.distance for one in lineage.upstream("lake/report", 2)] == [1, 2]
    assert [shown(one.node) for one in lineage.downstream("lake/raw")] == ["etl/sum", "lake/report"]


@pytest.mark.parametrize(
    ("told", "state", "times"),
    [
        ([("START", 1), ("COMPLETE", 5)], "COMPLETE", (1, 5)),
        ([("START", 1)], "RUNNING", (1, None)),
        ([("START", 1), ("FAIL", 5), ("COMPLETE", 6)], "ERROR", (1, 5)),
        ([("START", 1), ("FAIL", 5), ("START", 7), ("COMPLETE", 9)], "COMPLETE", (7, 9)),
        ([("START", 1), ("FAIL", 5), ("START", 7)], "RUNNING", (7, None)),
    ],
)
def test_a_job_shows_how_it_ran_last(
    home: Path, told: list[tuple[str, int]], state: str, times: tuple[int, int | None]
) -> None:
    noon_ms = 1_769_860_800_000
    earlier = run_event("before", "FAIL", 0, writes=["lake/out"])
    keep(home, [earlier, *(run_event("now", kind, minute) for kind, minute in told)])
    for name in ("etl/daily", "lake/out"):
        run = asked(home, name).last_run
        assert run is not None
        minutes = tuple(
            None if at is None else (at - noon_ms) // 60_000 for at in (run.started_ms, run.ended_ms)
        )
        assert (run.run, run.state, minutes) == ("now", state, times)


def test_a_tracked_file_s_flow_is_a_job_with_its_last_file(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker:
        for name in ("first.csv", "second.csv"):
            with tracker.file(name, data_source="sftp-in") as file:
                file.egress("lake")
    found = asked(settings.home, "sftp-in")
    system = settings.system_name
    reached = [(1, f"{system}/(to lake) · sftp-in"), (1, f"{system}/lake")]
    assert (found.node.kind, names(found.downstream)) == ("job", reached)
    assert found.last_run is not None
    assert (found.last_run.run, found.last_run.state) == (file.did, "COMPLETE")


def test_a_name_that_nothing_or_several_have_is_an_error(home: Path) -> None:
    keep(home, [run_event("a", writes=["lake/out", "pond/out"])])
    with pytest.raises(NotFoundError, match="no dataset, column or job has the name 'nothing'"):
        asked(home, "nothing")
    with pytest.raises(NotFoundError, match="give one of lake/out, pond/out"):
        asked(home, "out")
    with pytest.raises(NotFoundError, match="no dataset, column or job has the name '%'"):
        asked(home, "%")
    began_s = time.process_time()
    for hostile in ("a." * 30_000, "/" * 60_000, "lake/out." * 450):
        with pytest.raises(NotFoundError):
            asked(home, hostile)
    assert time.process_time() - began_s < 5


def test_files_alone_have_no_graph(settings: Settings) -> None:
    keep(settings.home, [run_event("a", writes=["lake/out"])])
    index(settings)
    if settings.root != settings.home:
        with pytest.raises(NotFoundError, match="ask the home that filed them"):
            Lineage.open(settings.root).dependencies("lake/out")


def columns(*told: tuple[str, str, list[tuple[str, str, str]]]) -> list[bytes]:
    """Events of jobs that each write one column; it comes from these: a dataset, a column and a type."""
    bodies = []
    for number, (dataset, column, sources) in enumerate(told):
        fields = [
            {"namespace": "lake", "name": name, "field": field, "transformations": [{"type": kind}]}
            for name, field, kind in sources
        ]
        facets = {"columnLineage": {"fields": {column: {"inputFields": fields}}}}
        output = {"namespace": "lake", "name": dataset, "facets": facets}
        bodies.append(run_event(f"r{number}", job=f"etl/j{number}", writes=[output]))
    return bodies


def test_a_column_is_asked_by_its_dataset_s_name_and_its_own(home: Path) -> None:
    keep(
        home,
        columns(
            ("orders", "total", [("in", "amount", "DIRECT"), ("in", "state", "INDIRECT")]),
            ("report.daily", "sum", [("orders", "total", "DIRECT")]),
        ),
    )
    found = asked(home, "lake/report.daily.sum")
    assert names(found.upstream) == [
        (1, "lake/orders.total"),
        (2, "lake/in.amount"),
        (2, "lake/in.state"),
    ]
    assert {str(edge.kind) for edge in found.upstream.edges} == {"derive", "influence"}
    assert found.last_run is None
    assert names(asked(home, "in.amount").downstream) == [
        (1, "lake/orders.total"),
        (2, "lake/report.daily.sum"),
    ]
    with pytest.raises(NotFoundError):
        asked(home, "orders.nothing")


def test_what_decides_all_rows_of_a_dataset_decides_its_columns(home: Path) -> None:
    state = {"namespace": "lake", "name": "in", "field": "state"}
    facets = {"columnLineage": {"fields": {"total": {"inputFields": []}}, "dataset": [state]}}
    keep(home, [run_event("r", writes=[{"namespace": "lake", "name": "orders", "facets": facets}])])
    found = asked(home, "lake/orders.total")
    assert names(found.upstream) == [(1, "lake/orders"), (2, "lake/in.state")]


def test_two_datasets_that_files_reach_by_one_sink_stay_two(settings: Settings) -> None:
    places = {name: f"s3://lake/{name}" for name in ("raw", "clean")}
    with Tracker(settings=settings) as tracker:
        for name, place in places.items():
            with tracker.file(f"{name}.csv", data_source=f"from-{name}", data_sinks={"lake": place}) as file:
                file.egress("lake")
    for name, place in places.items():
        assert names(asked(settings.home, place).upstream)[0] == (
            1,
            f"{settings.system_name}/from-{name}",
        )


def dataset(name: str, **facets: object) -> dict[str, object]:
    return {"namespace": "lake", "name": name, "facets": facets}


def source(name: str, field: str | None = None, kind: str = "DATASET") -> dict[str, object]:
    told: dict[str, object] = {"namespace": "lake", "name": name, "type": kind}
    return told if field is None else told | {"field": field}


def test_where_a_job_says_what_goes_where_nothing_else_does(home: Path) -> None:
    """The facet `lineage` is believed before the inputs and outputs of the event."""
    outputs = [
        dataset("left", lineage={"inputs": [source("a")]}),
        dataset("right", lineage={"inputs": [source("b")]}),
        dataset("constant", lineage={"inputs": []}),
        dataset("rest"),
    ]
    keep(
        home,
        [
            run_event("r", job="etl/both", reads=["lake/a", "lake/b"], writes=outputs),
            run_event("s", job="etl/more", reads=["sftp/in"], writes=["lake/a"]),
        ],
    )

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
    derived = {"inputFields": [{"namespace": "lake", "name": "in", "field": "guess"}]}
    hashed = source("in", "email") | {
        "transformations": [{"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True}]
    }
    facets = {
        "columnLineage": {"fields": {"user": derived}},
        "lineage": {"fields": {"user": {"inputs": [hashed]}}},
    }
    keep(home, [run_event("r", job="etl/mask", writes=[dataset("users", **facets)])])
    (edge,) = asked(home, "lake/users.user").upstream.edges
    assert (edge.source.column, edge.analyzer, edge.confidence) == ("email", "lineage", 1.0)
    assert (edge.transformations, edge.masking) == (("DIRECT/TRANSFORMATION",), True)
    assert (edge.job and edge.job.name, edge.run) == ("mask", "r")
    assert asked(home, "lake/users", up=1).upstream.edges[0].analyzer == "event"


def test_events_of_jobs_and_datasets_tell_what_those_of_runs_do(home: Path) -> None:
    schema = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/"
    derived = {"inputFields": [{"namespace": "lake", "name": "in", "field": "a"}]}
    told = {"eventTime": "2026-01-31T12:00:00Z", "producer": "urn:x"}
    job = told | {
        "schemaURL": f"{schema}JobEvent",
        "job": {"namespace": "etl", "name": "planned"},
        "inputs": [dataset("in")],
        "outputs": [dataset("out", columnLineage={"fields": {"b": derived}})],
    }
    other = {"identifiers": [{"namespace": "hive", "name": "out", "type": "TABLE"}]}
    named = told | {"schemaURL": f"{schema}DatasetEvent", "dataset": dataset("out", symlinks=other)}
    keep(home, [json.dumps(body).encode() for body in (job, named)])
    assert names(asked(home, "hive/out").upstream) == [(1, "etl/planned"), (2, "lake/in")]
    assert names(asked(home, "lake/out.b").upstream) == [(1, "lake/in.a")]


def test_a_renamed_table_comes_from_the_earlier_one_and_what_has_its_name_since_does_not(home: Path) -> None:
    change = {
        "lifecycleStateChange": "RENAME",
        "previousIdentifier": {"namespace": "lake", "name": "old"},
    }
    renamed = dataset("new", lifecycleStateChange=change)
    keep(
        home,
        [
            run_event("a", job="etl/load", minute=1, reads=["sftp/in"], writes=["lake/old"]),
            run_event("b", job="etl/rename", minute=2, writes=[renamed]),
            run_event("c", job="etl/again", minute=3, reads=["lake/new"], writes=["lake/report"]),
        ],
    )
    assert [name for _, name in names(asked(home, "lake/report").upstream)] == [
        "etl/again", "lake/new", "etl/rename", "lake/old", "etl/load", "sftp/in",
    ]  # fmt: skip


def test_as_of_an_instant_what_was_told_later_is_not_there(home: Path) -> None:
    keep(
        home,
        [
            run_event("a", "START", 1, job="etl/load", reads=["sftp/in"], writes=["lake/raw"]),
            run_event("a", "COMPLETE", 5, job="etl/load"),
            run_event("b", "START", 7, job="etl/load", reads=["sftp/more"], writes=["lake/raw"]),
            run_event("b", "FAIL", 8, job="etl/load"),
            run_event("c", "COMPLETE", 9, job="etl/sum", reads=["lake/raw"], writes=["lake/report"]),
        ],
    )

    def as_of(minute: int) -> tuple[set[str], set[str], str | None]:
        instant_ms = 1_769_860_800_000 + minute * 60_000
        found = Lineage.open(home).dependencies("lake/raw", up=None, down=None, as_of_ms=instant_ms)
        sides = [{name for _, name in names(reach)} for reach in (found.upstream, found.downstream)]
        return sides[0], sides[1], None if found.last_run is None else found.last_run.state

    assert as_of(3) == ({"etl/load", "sftp/in"}, set(), "RUNNING")
    assert as_of(6) == ({"etl/load", "sftp/in"}, set(), "COMPLETE")
    assert as_of(8) == ({"etl/load", "sftp/in", "sftp/more"}, set(), "ERROR")
    assert as_of(10)[1] == {"etl/sum", "lake/report"}


ALL_ROWS = (
    "SELECT * FROM node ORDER BY 1",
    "SELECT * FROM edge ORDER BY 1, 2, 3, 4, 5",
    "SELECT * FROM belief ORDER BY 1, 2, 3, 4, 5",
    "SELECT * FROM property ORDER BY 1, 2, 3",
    "SELECT * FROM job_run ORDER BY 1, 2",
)
FACETS: tuple[dict[str, Any], ...] = (
    {"schema": {"fields": [{"name": "a", "type": "string"}]}, "version": {"datasetVersion": "1"}},
    {"schema": {"fields": [{"name": "b", "type": "string"}]}, "documentation": {"description": "other"}},
    {
        "columnLineage": {
            "fields": {"a": {"inputFields": [{"namespace": "lake", "name": "in", "field": "x"}]}}
        }
    },
    {"lineage": {"inputs": [source("in")], "fields": {"a": {"inputs": [source("in", "y")]}}}},
    {"dataSource": {"uri": "s3://lake"}, "ownership": {"owners": [{"name": "team"}, {"name": "ops"}]}},
    {"symlinks": {"identifiers": [{"namespace": "hive", "name": "t", "type": "TABLE"}]}, "lineage": 7},
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
    tmp_path_factory: pytest.TempPathFactory, told: list[Any], chance: random.Random
) -> None:
    bodies = [
        json.dumps(
            members(
                f"run-{at % 3}",
                kind,
                f"2026-01-31T{10 + minute // 60}:{minute % 60:02}:00Z",
                job=f"etl/j{job}",
                inputs=[dataset("in", **read)],
                outputs=[dataset(f"out-{job}", **written)],
            )
        ).encode()
        for at, (job, kind, minute, read, written) in enumerate(told)
    ]
    rows = []
    for repeats in (1, 3):
        home = tmp_path_factory.mktemp("rows") / "home"
        settings = Settings.load({"home": home, "runner": "none"}, env={}, cwd=home.parent)
        left = bodies * repeats
        chance.shuffle(left)
        half = chance.randint(0, len(left))
        for some in (left[:half], left[half:]):
            keep(home, some)
            index(settings)
        with closing(sqlite3.connect(home / "index.db")) as database:
            rows.append([database.execute(statement).fetchall() for statement in ALL_ROWS])
    assert rows[0] == rows[1]


def test_what_analyzers_find_is_in_the_graph_and_a_surer_word_counts(settings: Settings) -> None:
    query = "INSERT INTO lake.report SELECT customer, sum(amount) AS total FROM lake.orders GROUP BY customer"
    facets = {"sql": {"query": query, "dialect": "spark"}}
    fields = [{"name": "customer", "type": "string"}, {"name": "amount", "type": "double"}]
    derived = {"inputFields": [{"namespace": "lake", "name": "exact", "field": "x"}]}
    told = {"columnLineage": {"fields": {"total": derived}}}

    def event(run: str, job: str, minute: int, **more: object) -> bytes:
        named = {"namespace": "etl", "name": job, "facets": facets}
        reads = [dataset("lake.orders", schema={"fields": fields})]
        at = f"2026-01-31T12:{minute:02}:00Z"
        writes = [dataset("lake.report", **more)]
        return json.dumps(
            members(run, "COMPLETE", at, inputs=reads, outputs=writes) | {"job": named}
        ).encode()

    keep(settings.home, [event("a", "sum", 1)])
    index(settings)
    found = asked(settings.home, "lake.report.total")
    assert [(shown(edge.source), edge.kind) for edge in found.upstream.edges][:1] == [
        ("lake/lake.orders.amount", "derive")
    ]
    edge = found.upstream.edges[0]
    assert (edge.analyzer, edge.transformations) == ("sql", ("DIRECT/AGGREGATION",))
    assert (edge.job and edge.job.name, edge.run, edge.first_ms) == ("sum", "a", 1_769_860_860_000)

    used = {one.name: one.edges for one in Lineage.open(settings.home).analyzers().analyzers}
    assert used["sql"] > 1
    assert (used["event"], used["columnLineage"], used["generic"]) == (3, 0, 0)

    keep(settings.home, [event("b", "sum", 0, **told)])
    for _ in range(2):  # as the tail, and in the index
        found = asked(settings.home, "lake.report.total")
        assert [shown(edge.source) for edge in found.upstream.edges] == ["lake/exact.x"]
        index(settings)
    keep(settings.home, [event("c", "sum again", 2)])
    index(settings)
    sources = {shown(edge.source) for edge in asked(settings.home, "lake.report.total", up=1).upstream.edges}
    assert sources == {"lake/exact.x", "lake/lake.orders.amount", "lake/lake.report"}


def test_what_starts_a_job_waits_for_it_or_owns_it_and_the_versions_of_a_dataset_are_beside_it(
    home: Path,
) -> None:
    """The job's owner and the dataset's are those that were named last, whatever comes in whichever order."""

    def train(minute: int, owner: str, version: str) -> bytes:
        owned = {"ownership": {"owners": [{"name": owner}]}}
        model = dataset("models/churn", version={"datasetVersion": version}, **owned)
        told = json.loads(run_event("t", minute=minute, job="ml/train", writes=[model]))
        jobs = {name: {"job": {"namespace": "ml", "name": name}} for name in ("snapshot", "predict", "train")}
        told["job"]["facets"] = owned
        told["run"]["facets"] = {
            "parent": {"run": {"runId": "p"}, "job": {"namespace": "airflow", "name": "nightly"}},
            "jobDependencies": {
                "upstream": [jobs["snapshot"], jobs["train"]],
                "downstream": [jobs["predict"], jobs["train"]],
            },
        }
        return json.dumps(told).encode()

    keep(home, [train(7, "team:ml", "v2"), train(1, "team:old", "v1"), train(9, "team:ml", "v3")])

    def related(name: str, as_of: str | None = None) -> list[tuple[str, str, str]]:
        as_of_ms = None if as_of is None else int(datetime.fromisoformat(as_of).timestamp() * 1_000)
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
    assert related("lake/models/churn") == [
        *(
            (model, "version", "v3"),
            (model, "version", "v2"),
            ("team:ml", "own", model),
            (model, "version", "v1"),
        )
    ]
    assert related("lake/models/churn", "2026-01-31T12:02:00+00:00") == [(model, "version", "v1")]


def test_the_graph_in_sql_has_each_type_of_node_and_edge(settings: Settings) -> None:
    owners = {"owners": [{"name": "team:sales"}]}
    facets = {"ownership": owners, "version": {"datasetVersion": "7"}, "dataSource": {"uri": "s3://lake"}}
    derived = {"columnLineage": {"fields": {"a": {"inputFields": [source("in", "x")]}}}}
    written = dataset("out", **facets, **derived, tags={"tags": [{"key": "tier", "value": "1"}]})
    path = {"namespace": "s3://lake", "name": "raw/dt=2026-01-31"}
    keep(settings.home, [run_event("r", reads=[path], writes=[written])])
    index(settings)
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


def test_what_the_runs_of_a_job_read_and_wrote_goes_by_run(home: Path) -> None:
    directory = {"namespace": "spark", "name": "app.execute_insert_into_data_source_dir_command"}
    job = f"{directory['namespace']}/{directory['name']}"
    events = [
        run_event("1", "START", 0, job=job, reads=["lake/x"]),
        run_event("1", "COMPLETE", 1, job=job, writes=["lake/a"]),
        run_event("2", "START", 2, job=job, reads=["lake/y", "lake/z"]),
        run_event("2", "COMPLETE", 3, job=job, reads=["lake/y"], writes=["lake/b"]),
        run_event("3", job="etl/on", reads=["lake/b"], writes=["lake/c"]),
    ]
    for some in (events[:2], events[2:]):
        keep(home, some)
        flush(Settings.load({"home": home}, origin="tests", env={}))
    assert names(asked(home, "lake/a").upstream) == [(1, job), (2, "lake/x")]
    assert names(asked(home, "lake/b").upstream) == [(1, job), (2, "lake/y"), (2, "lake/z")]
    assert names(asked(home, "lake/c").upstream)[2:] == [(3, job), (4, "lake/y"), (4, "lake/z")]
    assert names(asked(home, "lake/x").downstream) == [(1, job), (2, "lake/a")]
    assert names(asked(home, job).upstream) == [(1, "lake/x"), (1, "lake/y"), (1, "lake/z")]
