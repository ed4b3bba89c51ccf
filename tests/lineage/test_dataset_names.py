"""A dataset is one in the graph, whatever events call it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from events import members

from waybill.collector.endpoints import Readings
from waybill.exporter import Query
from waybill.lineage import Lineage
from waybill.lineage.graph import OfDetails, shown
from waybill.lineage.index import Index
from waybill.transport import Journal, Kind, NotFoundError, Settings, Tracker, flush
from waybill.transport.config import obey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from waybill.lineage.graph import Dependencies, Reach

EVENTS = Path(__file__).parents[1] / "facets" / "expected"
GRAPHS = Path(__file__).parent / "spark_graphs"
NAMELESS = "no dataset, column or job has the name"


def dataset(namespace: str, name: str, **facets: object) -> dict[str, Any]:
    return {"namespace": namespace, "name": name, "facets": facets}


def file(name: str, **facets: object) -> dict[str, Any]:
    return dataset("file", name, **facets)


def event(job: str, reads: Sequence[Any] = (), writes: Sequence[Any] = (), minute: int = 0) -> bytes:
    at = f"2026-01-31T12:{minute:02}:00Z"
    return json.dumps(
        members(f"{job}-{minute}", "COMPLETE", at, job=job, inputs=reads, outputs=writes)
    ).encode()


def keep(settings: Settings, bodies: Iterable[bytes]) -> None:
    with closing(Journal(settings.home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, body, "tests") for body in bodies)


def asked(settings: Settings, name: str) -> Dependencies:
    return Lineage.open(settings.home).dependencies(name, up=None, down=None)


def names(reach: Reach) -> list[str]:
    return [shown(one.node) for one in reach.nodes]


NIGHTS = [
    event("etl/load", ["sftp/in"], [file("/lake/orders/dt=2026-01-30"), file("/lake/raw_20260130.csv")], 1),
    event("etl/load", ["sftp/in"], [file("/lake/orders/dt=2026-01-31"), file("/lake/raw_20260131.csv")], 2),
    event(
        "etl/sum", [file("/lake/orders/dt=2026-01-31/part-00000.parquet")], [dataset("s3://out", "sum")], 3
    ),
    event("etl/clean", [file("/lake/raw_20260131.csv")], ["warehouse/orders_20260131"], 4),
]


@pytest.mark.parametrize("is_filed", [False, True])
def test_partitions_and_dated_files_are_one_dataset_which_their_real_names_find(
    settings: Settings, *, is_filed: bool
) -> None:
    keep(settings, NIGHTS[:2])
    if is_filed:
        assert flush(settings).problems == {}
    keep(settings, NIGHTS[2:])
    ways = (
        "",
        "/",
        "/dt=2026-01-31",
        "/dt=2026-01-31/",
        "/dt=2026-01-31/part-00000.parquet",
        "/dt=2026-01-30",
        "/2026/02/01",
    )
    untold = ("/lake/orders/2026/02/01", "/lake/orders/dt=2026-02-01/")
    for name in (
        *(f"file:/lake/orders{way}" for way in ways),
        *untold,
        "/lake/orders",
        "dt=2026-01-30",
        "orders",
    ):
        found = asked(settings, name)
        assert shown(found.node) == "file:/lake/orders"
        assert names(found.upstream) == ["etl/load", "sftp/in"]
        assert names(found.downstream) == ["etl/sum", "s3://out/sum"]
    for name in ("file:/lake/raw_20260130.csv", "raw_20260131.csv", "raw.csv"):
        found = asked(settings, name)
        assert shown(found.node) == "file:/lake/raw.csv"
        assert names(found.downstream) == ["etl/clean", "warehouse/orders_20260131"]
    found = asked(settings, "etl/load")
    assert names(found.downstream)[:2] == ["file:/lake/orders", "file:/lake/raw.csv"]
    assert len(found.downstream.edges) == 6


def test_when_the_rules_change_the_graph_is_made_again_with_them(settings: Settings) -> None:
    keep(settings, NIGHTS)
    assert flush(settings).problems == {}
    one_rule = settings.with_values({"dataset_trimmers": "key-value"}, "tests")
    assert flush(one_rule).problems == {}
    assert names(asked(settings, "file:/lake/orders/dt=2026-01-30").downstream) == []
    with pytest.raises(NotFoundError, match=NAMELESS):
        asked(settings, "raw.csv")
    part = "/lake/orders/dt=2026-01-31/part-00000.parquet"
    assert shown(asked(settings, part).node) == f"file:{part}"
    keep(settings, [event("etl/more", [file("/lake/orders/dt=2026-02-01")], minute=5)])
    assert names(asked(settings, "file:/lake/orders").downstream) == ["etl/more"]
    assert flush(settings.with_values({"dataset_trimmers": ""}, "tests")).problems == {}
    assert names(asked(settings, "dt=2026-02-01").downstream) == ["etl/more"]


def test_the_rules_of_a_home_hold_before_it_has_an_index(settings: Settings) -> None:
    untrimmed = settings.with_values({"dataset_trimmers": ""}, "tests")
    with (
        Tracker(settings=untrimmed) as tracker,
        tracker.file("a.csv", data_source="in", data_sinks={"lake": "s3://lake/raw/dt=1"}) as tracked,
    ):
        tracked.egress("lake")
    assert shown(asked(settings, "dt=1").node) == "s3://lake/raw/dt=1"


def test_columns_and_other_names_are_those_of_the_one_dataset(settings: Settings) -> None:
    def derived(column: str, namespace: str, name: str, field: str) -> dict[str, Any]:
        source = {"namespace": namespace, "name": name, "field": field}
        return {"columnLineage": {"fields": {column: {"inputFields": [source]}}}}

    table = {"symlinks": {"identifiers": [{"namespace": "hive://meta", "name": "lake.orders"}]}}
    first = file("/lake/orders/dt=1", **derived("total", "file", "/in/raw_2026-01-30.csv", "amount"), **table)
    second = file("/lake/report", **derived("sum", "hive://meta", "lake.orders", "total"))
    third = dataset("s3://out", "share/", **derived("sum", "file", "/lake/report/", "sum"))
    keep(
        settings,
        [event("etl/load", [], [first]), event("etl/sum", [], [second]), event("etl/share", [], [third])],
    )
    for name in ("file:/lake/orders", "file:/lake/orders/dt=1", "hive://meta/lake.orders"):
        found = asked(settings, f"{name}.total")
        assert names(found.upstream) == ["file:/in/raw.csv.amount"]
        assert names(found.downstream) == ["file:/lake/report.sum", "s3://out/share/.sum"]


@pytest.mark.parametrize("namespace", ["file", "file:", "file://", "file:///", "file://localhost"])
def test_one_place_in_several_spellings_is_one_dataset(settings: Settings, namespace: str) -> None:
    keep(
        settings,
        [
            event("etl/load", [], [dataset(namespace, "/lake/orders/"), dataset("s3a://lake", "/raw")]),
            event("etl/sum", [file("/lake/orders"), dataset("s3://lake", "raw/")], ["dashboard/sum"]),
        ],
    )
    assert min(names(asked(settings, "dashboard/sum").upstream)) == "etl/load"
    for name in (
        "file:/lake/orders",
        "file:///lake/orders/",
        "file://localhost/lake/orders",
        "/lake/orders/",
    ):
        assert names(asked(settings, name).downstream) == ["etl/sum", "dashboard/sum"]
    for name in ("s3://lake/raw", "s3a://lake/raw/", "raw"):
        assert names(asked(settings, name).upstream) == ["etl/load"]


def test_spark_s_runs_and_tracked_files_meet_in_one_dataset(settings: Settings) -> None:
    """The job of the real events reads what tracked files were written to, each named in another way."""
    sinks = {
        "orders": "/data/in/orders.csv",
        "slash": "/data/in/orders.csv/",
        "uri": "file:///data/in/customers.parquet",
        "host": "file://localhost/data/in/customers.parquet/",
    }
    with Tracker(settings=settings) as tracker:
        for sink, place in sinks.items():
            with tracker.file(f"{sink}.csv", data_source=f"from-{sink}", data_sinks={sink: place}) as tracked:
                tracked.egress(sink)
    keep(settings, (EVENTS / "4.3.0-sql.jsonl").read_bytes().splitlines())
    upstream = names(asked(settings, "file:/data/4.3.0-sql/revenue").upstream)
    flows = {f"{settings.system_name}/from-{sink}" for sink in sinks}
    assert flows < {*upstream}
    for place in sinks.values():
        downstream = names(asked(settings, place).downstream)
        assert "file:/data/4.3.0-sql/revenue" in downstream


def test_the_partitions_that_spark_s_listener_names_beside_the_dataset_find_it(settings: Settings) -> None:
    keep(settings, (GRAPHS / "4.3.0-dated.jsonl").read_bytes().splitlines())
    for name in ("orders/2026-01-30", "2026-01-31", "file:/data/lake/orders/2026-01-31"):
        assert shown(asked(settings, name).node) == "file:/data/lake/orders"
    assert shown(asked(settings, "01/30").node) == "file:/data/lake/ymd"


def test_a_sink_hides_no_dataset_with_the_same_last_part(settings: Settings) -> None:
    with (
        Tracker(settings=settings) as tracker,
        tracker.file("a.csv", data_source="in", data_sinks={"lake": "s3://raw/files"}) as tracked,
    ):
        tracked.egress("lake")
    keep(settings, [event("spark/sum", [file("/data/lake")], [file("/data/sum")])])
    assert shown(asked(settings, "lake").node) == "file:/data/lake"


def test_a_bucket_of_tracked_files_and_one_of_spark_is_one(settings: Settings) -> None:
    """Spark's listener writes `s3://lake` for `s3a://lake`, and no slash after it."""
    with Tracker(settings=settings) as tracker:
        for sink, place in {"cloud": "s3a://lake/orders/", "dated": "s3://lake/orders/dt=2026-01-31"}.items():
            with tracker.file(f"{sink}.csv", data_source=f"from-{sink}", data_sinks={sink: place}) as tracked:
                tracked.egress(sink)
    keep(settings, [event("spark/sum", [dataset("s3://lake", "orders")], [file("/data/sum")])])
    assert len(names(asked(settings, "file:/data/sum").upstream)) >= 4
    assert names(asked(settings, "s3a://lake/orders/").downstream) == ["spark/sum", "file:/data/sum"]


def test_what_is_forgotten_has_no_real_names_either(settings: Settings) -> None:
    keep(settings, NIGHTS)
    assert flush(settings).problems == {}
    assert shown(asked(settings, "dt=2026-01-30").node) == "file:/lake/orders"
    forgetful = settings.with_values({"lineage_retain_days": 1}, "tests")
    with closing(Journal(settings.home)) as journal, closing(Index(journal, forgetful, linger_s=0)) as index:
        index.step()
    for name in ("dt=2026-01-30", "file:/lake/orders", "etl/load"):
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, name)


@pytest.mark.parametrize("is_filed", [False, True])
def test_a_table_is_found_by_its_own_name_and_a_path_first(settings: Settings, *, is_filed: bool) -> None:
    space = "postgres://db:5432"
    named = ("shop.public.orders", "shop.old.orders", "shop.public.rates")
    tables = [dataset(space, name) for name in named]
    paths = [file("/lake/rates"), file("/lake/a.orders.csv")]
    keep(settings, [event("etl/orders", tables, paths)])
    if is_filed:
        flush(settings)
    assert shown(asked(settings, "public.rates").node) == f"{space}/shop.public.rates"
    assert shown(asked(settings, "public.orders").node) == f"{space}/shop.public.orders"
    assert shown(asked(settings, "shop.old.orders").node) == f"{space}/shop.old.orders"
    assert shown(asked(settings, "rates").node) == "file:/lake/rates"
    assert shown(asked(settings, "orders").node) == "etl/orders"
    for no_part in ("rders", "orders.csv", "blic.orders", "csv"):
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, no_part)


def test_a_dataset_without_a_namespace_is_shown_as_what_it_is(settings: Settings) -> None:
    table = "default_catalog.default_database.t"
    keep(settings, [event("flink/count", [dataset("", table)], [dataset("", "/data/out")])])
    for name in (table, "t", "default_database.t"):
        assert shown(asked(settings, name).node) == table
    assert names(asked(settings, table).downstream) == ["flink/count", "/data/out"]
    assert shown(asked(settings, "/data/out").node) == "/data/out"


SNOW, ORACLE, POSTGRES = "snowflake://acme", "oracle://db:1521", "postgres://db:5432"


def spelled(namespace: str, name: str, *columns: str, **facets: object) -> dict[str, Any]:
    if columns:
        facets["schema"] = {"fields": [{"name": one, "type": "int"} for one in columns]}
    return dataset(namespace, name, **facets)


def by_text(job: str, sql: str, reads: Sequence[Any], writes: Sequence[Any], dialect: str) -> bytes:
    facets = {"sql": {"query": sql, "dialect": dialect}}
    named = {"namespace": "etl", "name": job, "facets": facets}
    return json.dumps(members(f"run of {job}", job=named, inputs=reads, outputs=writes)).encode()


def by_columns(job: str, target: dict[str, Any], column: str, source: dict[str, Any], field: str) -> bytes:
    used = {"namespace": source["namespace"], "name": source["name"], "field": field}
    told = {"columnLineage": {"fields": {column: {"inputFields": [used]}}}}
    return event(job, [source], [{**target, "facets": {**target["facets"], **told}}])


@pytest.mark.parametrize("is_schema_first", [False, True])
@pytest.mark.parametrize(("namespace", "dialect"), [(SNOW, "snowflake"), (ORACLE, "oracle")])
def test_a_column_has_one_name_in_capitals_and_small_letters_where_the_database_says_so(
    settings: Settings, namespace: str, dialect: str, *, is_schema_first: bool
) -> None:
    orders, daily = (spelled(namespace, f"SHOP.PUBLIC.{name}") for name in ("ORDERS", "DAILY"))
    schemas = [
        event("etl/crawl", [], [spelled(namespace, orders["name"], "id", "total")], 1),
        event("etl/crawl", [], [spelled(namespace, daily["name"], "id", "total")], 2),
    ]
    told = [
        by_text("load", "INSERT INTO daily (total) SELECT total FROM orders", [orders], [daily], dialect),
        by_columns("etl/report", dataset("lake", "report"), "sum", daily, "total"),
    ]
    keep(settings, [*schemas, *told] if is_schema_first else [*told, *schemas])
    assert flush(settings).problems == {}
    lineage = Lineage.open(settings.home)
    (end,) = lineage.origins("lake/report.sum").ends
    assert shown(end).casefold() == f"{namespace}/shop.public.orders.total"
    for column in ("total", "TOTAL", "Total"):
        found = {shown(one.node): one.columns for one in lineage.impact(f"{orders['name']}.{column}").nodes}
        assert {name: len(columns) for name, columns in found.items()} == {
            "etl/load": 0,
            f"{namespace}/SHOP.PUBLIC.DAILY": 1,
            "etl/report": 0,
            "lake/report": 1,
        }
    (columns,) = lineage.dependencies(daily["name"], up=0, down=0, columns=True).columns
    assert columns.names == ("id", "total")
    assert {edge.target.column for edge in columns.edges} == {"total"}
    with closing(Journal(settings.home)) as journal, closing(Readings(journal, obey(journal))) as readings:
        answers = readings.begin().answers
        assert answers.answer(OfDetails(f"{daily['name']}.TOTAL")).types == {"total": "int"}


def test_columns_that_a_schema_names_in_both_ways_are_two(settings: Settings) -> None:
    for namespace, capital in ((POSTGRES, "Total"), (SNOW, "TOTAL")):
        source = spelled(namespace, "s.p.a", "total", capital)
        keep(
            settings,
            [
                by_columns("etl/small", dataset("lake", "small"), "x", source, "total"),
                by_columns("etl/large", dataset("lake", "large"), "x", source, capital),
            ],
        )
        lineage = Lineage.open(settings.home)
        for column, name in (("total", "small"), (capital, "large")):
            found = [shown(one.node) for one in lineage.downstream(f"{namespace}/s.p.a.{column}")]
            assert found == [f"lake/{name}.x"]


def test_columns_of_files_in_capitals_and_small_letters_are_two(settings: Settings) -> None:
    source = file("/lake/in.json")
    keep(
        settings,
        [
            by_columns("etl/small", dataset("lake", "small"), "x", source, "id"),
            by_columns("etl/large", dataset("lake", "large"), "x", source, "ID"),
        ],
    )
    assert names(asked(settings, "/lake/in.json.id").downstream) == ["lake/small.x"]
    assert names(asked(settings, "/lake/in.json.ID").downstream) == ["lake/large.x"]


def test_a_table_has_one_name_in_capitals_and_small_letters_where_the_database_says_so(
    settings: Settings,
) -> None:
    for at, namespace in ((1, SNOW), (2, ORACLE)):
        told, again = (spelled(namespace, f"{name}.ORDERS") for name in ("shop.public", "SHOP.PUBLIC"))
        keep(
            settings,
            [
                by_columns(f"etl/load{at}", told, "total", dataset("lake", "raw"), "amount"),
                by_columns(f"etl/sum{at}", dataset("lake", f"sum{at}"), "x", again, "TOTAL"),
            ],
        )
        for name in (told["name"], again["name"], "Shop.Public.Orders"):
            found = asked(settings, f"{namespace}/{name}")
            assert names(found.upstream) == [f"etl/load{at}", "lake/raw"]
            assert names(found.downstream) == [f"etl/sum{at}", f"lake/sum{at}"]
        assert names(asked(settings, f"lake/sum{at}.x").upstream)[-1] == "lake/raw.amount"
    keep(settings, [event("etl/quoted", [spelled(POSTGRES, "s.p.Orders"), spelled(POSTGRES, "s.p.orders")])])
    assert len(Lineage.open(settings.home).names(f"{POSTGRES}/s.p.Orders")) == 1


def test_a_column_is_found_under_every_name_of_its_dataset(settings: Settings) -> None:
    link = {"symlinks": {"identifiers": [{"namespace": "hive://meta", "name": "lake.orders"}]}}
    path = dataset("s3a://lake", "orders/", **link)
    alias = {"symlinks": {"identifiers": [{"namespace": "s3://lake", "name": "orders"}]}}
    schema = {"schema": {"fields": [{"name": "note", "type": "string"}]}}
    keep(
        settings,
        [
            by_columns("etl/load", path, "total", dataset("lake", "raw"), "amount"),
            event("etl/name", [], [dataset("catalog", "orders", **alias, **schema)]),
        ],
    )
    paths = ("s3a://lake/orders/", "s3://lake/orders", "s3://lake/orders/")
    for name in (*paths, "hive://meta/lake.orders", "catalog/orders"):
        assert names(asked(settings, f"{name}.total").upstream) == ["lake/raw.amount"]
        assert Lineage.open(settings.home).origins(f"{name}.note").steps == ()
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, f"{name}.other")


def test_a_table_in_capitals_is_found_in_small_letters_where_the_database_takes_both(
    settings: Settings,
) -> None:
    for at, namespace in enumerate((SNOW, ORACLE, POSTGRES)):
        source = spelled(namespace, f"DB{at}.PUB.SRC{at}", "TOTAL")
        keep(settings, [by_columns(f"etl/sum{at}", dataset("lake", f"sum{at}"), "x", source, "TOTAL")])
    keep(settings, [event("etl/copy", [file("/IN/ONE.CSV")], ["lake/one"], 9)])
    lineage = Lineage.open(settings.home)
    for at, namespace in enumerate((SNOW, ORACLE, POSTGRES)):
        table = f"{namespace}/DB{at}.PUB.SRC{at}"
        for name in (f"db{at}.pub.src{at}", f"pub.src{at}", f"src{at}", f"Db{at}.Pub.Src{at}"):
            assert shown(asked(settings, name).node) == table, name
            for column in ("TOTAL", "total"):
                found = [shown(one.node) for one in lineage.impact(f"{name}.{column}").nodes]
                assert found == [f"etl/sum{at}", f"lake/sum{at}"], name
    for name in ("/in/one.csv", "one.csv", "LAKE/ONE", "ETL/COPY"):
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, name)
    keep(settings, [event("etl/small", [spelled(POSTGRES, "db2.pub.src2")], ["lake/small"], 10)])
    assert shown(asked(settings, "db2.pub.src2").node) == f"{POSTGRES}/db2.pub.src2"


def test_a_run_is_found_by_every_name_of_a_dataset_that_it_read(settings: Settings) -> None:
    table = {"symlinks": {"identifiers": [{"namespace": "hive://meta", "name": "lake.orders"}]}}
    keep(
        settings,
        [
            event("etl/path", [dataset("s3a://lake", "orders/", **table)], ["lake/a"], 1),
            event("etl/table", [dataset("hive://meta", "lake.orders")], ["lake/b"], 2),
            event("etl/other", [dataset("s3://lake", "other")], ["lake/c"], 3),
            event("etl/upper", [dataset(SNOW, "SHOP.P.T")], ["lake/d"], 4),
        ],
    )
    for is_filed in (False, True):
        if is_filed:
            assert flush(settings).problems == {}
        lineage = Lineage.open(settings.home)
        for name in (
            "s3a://lake/orders/",
            "s3a://lake/orders",
            "s3://lake/orders",
            "s3://lake/orders/",
            "s3n://lake/orders",
            "hive://meta/lake.orders",
        ):
            found = lineage.find(Query(input_dataset=name))
            assert {one.did for one in found} == {"etl/path-1", "etl/table-2"}, name
        for name in (f"{SNOW}/shop.p.t", "shop.p.t", f"{SNOW}/SHOP.P.T"):
            assert [one.did for one in lineage.find(Query(input_dataset=name))] == ["etl/upper-4"], name
        assert lineage.find(Query(input_dataset="s3://lake/none")) == []
