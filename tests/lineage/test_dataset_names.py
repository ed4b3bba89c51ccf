"""A dataset is one in the graph, whatever events call it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from keeping import answers_of, dataset, index, keep, keep_filed, ran

from waybill.exporter import Query
from waybill.lineage import Lineage
from waybill.lineage.graph import OfDetails, shown
from waybill.lineage.index import Index
from waybill.transport import Journal, NotFoundError, Settings, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Mapping

    from waybill.lineage.graph import Dependencies, Reach

EVENTS = Path(__file__).parents[1] / "facets" / "expected"
GRAPHS = Path(__file__).parent / "spark_graphs"
NAMELESS = "no dataset, column or job has the name"


def file(name: str, **facets: Any) -> dict[str, Any]:  # noqa: ANN401 - see `dataset`
    return dataset(name, "file", **facets)


def asked(settings: Settings, name: str) -> Dependencies:
    return Lineage.open(settings.home).dependencies(name, up=None, down=None)


def names(reach: Reach) -> list[str]:
    return [shown(one.node) for one in reach.nodes]


def track(settings: Settings, places: Mapping[str, str]) -> None:
    """A file for each sink, of which each is a place."""
    with Tracker(settings=settings) as tracker:
        for sink, place in places.items():
            with tracker.file(f"{sink}.csv", data_source=f"from-{sink}", data_sinks={sink: place}) as tracked:
                tracked.egress(sink)


NIGHTS = [
    ran("etl/load", ["sftp/in"], [file("/lake/orders/dt=2026-01-30"), file("/lake/raw_20260130.csv")], 1),
    ran("etl/load", ["sftp/in"], [file("/lake/orders/dt=2026-01-31"), file("/lake/raw_20260131.csv")], 2),
    ran("etl/sum", [file("/lake/orders/dt=2026-01-31/part-00000.parquet")], ["out/sum"], 3),
    ran("etl/clean", [file("/lake/raw_20260131.csv")], ["warehouse/orders_20260131"], 4),
]


@pytest.mark.parametrize("filed", [0, 2])
def test_partitions_and_dated_files_are_one_dataset_which_their_real_names_find(
    settings: Settings, filed: int
) -> None:
    keep_filed(settings, NIGHTS, filed)
    parts = ("", "/", "/dt=2026-01-31", "/dt=2026-01-31/", "/dt=2026-01-31/part-00000.parquet")
    untold = ("/lake/orders/2026/02/01", "/lake/orders/dt=2026-02-01/", "file:/lake/orders/2026/02/01")
    for name in (
        *(f"file:/lake/orders{part}" for part in parts),
        *untold,
        *("/lake/orders", "dt=2026-01-30", "orders"),
    ):
        found = asked(settings, name)
        assert shown(found.node) == "file:/lake/orders"
        assert names(found.upstream) == ["etl/load", "sftp/in"]
        assert names(found.downstream) == ["etl/sum", "out/sum"]
    for name in ("file:/lake/raw_20260130.csv", "raw_20260131.csv", "raw.csv"):
        found = asked(settings, name)
        assert shown(found.node) == "file:/lake/raw.csv"
        assert names(found.downstream) == ["etl/clean", "warehouse/orders_20260131"]
    found = asked(settings, "etl/load")
    assert names(found.downstream)[:2] == ["file:/lake/orders", "file:/lake/raw.csv"]
    assert len(found.downstream.edges) == 6


def test_when_the_rules_change_the_graph_is_made_again_with_them(settings: Settings) -> None:
    keep_filed(settings, NIGHTS)
    index(settings.with_values({"dataset_trimmers": "key-value"}, "tests"))
    assert names(asked(settings, "file:/lake/orders/dt=2026-01-30").downstream) == []
    with pytest.raises(NotFoundError, match=NAMELESS):
        asked(settings, "raw.csv")
    part = "/lake/orders/dt=2026-01-31/part-00000.parquet"
    assert shown(asked(settings, part).node) == f"file:{part}"
    keep(settings.home, [ran("etl/more", [file("/lake/orders/dt=2026-02-01")], minute=5)])
    assert names(asked(settings, "file:/lake/orders").downstream) == ["etl/more"]
    index(settings.with_values({"dataset_trimmers": ""}, "tests"))
    assert names(asked(settings, "dt=2026-02-01").downstream) == ["etl/more"]


def test_the_rules_of_a_home_hold_before_it_has_an_index(settings: Settings) -> None:
    untrimmed = settings.with_values({"dataset_trimmers": ""}, "tests")
    track(untrimmed, {"lake": "s3://lake/raw/dt=1"})
    assert shown(asked(settings, "dt=1").node) == "s3://lake/raw/dt=1"


def test_columns_and_other_names_are_those_of_the_one_dataset(settings: Settings) -> None:
    table = "lake.orders", "hive://meta"
    raw, report = file("/in/raw_2026-01-30.csv"), file("/lake/report/")
    orders = file("/lake/orders/dt=1", same=[dataset(*table)])
    told = [
        by_columns("etl/load", orders, "total", raw, "amount"),
        by_columns("etl/sum", file("/lake/report"), "sum", dataset(*table), "total"),
        by_columns("etl/share", dataset("share/", "s3://out"), "sum", report, "sum"),
    ]
    keep(settings.home, told)
    for name in ("file:/lake/orders", "file:/lake/orders/dt=1", "hive://meta/lake.orders"):
        found = asked(settings, f"{name}.total")
        assert names(found.upstream) == ["file:/in/raw.csv.amount"]
        assert names(found.downstream) == ["file:/lake/report.sum", "s3://out/share/.sum"]


def test_one_place_in_several_spellings_is_one_dataset(settings: Settings) -> None:
    spellings = ["file", "file:", "file://", "file:///", "file://localhost"]
    places = [dataset("/lake/orders/", namespace) for namespace in spellings]
    reads = [file("/lake/orders"), dataset("raw/", "s3://lake")]
    told = [
        ran("etl/load", [], [*places, dataset("/raw", "s3a://lake")]),
        ran("etl/sum", reads, ["dashboard/sum"]),
    ]
    keep(settings.home, told)
    assert len(names(asked(settings, "etl/load").downstream)) == 4
    places_asked = ("file:/lake/orders", "file:///lake/orders/", "file://localhost/lake/orders")
    for name in (*places_asked, "/lake/orders/", "s3://lake/raw", "s3a://lake/raw/", "raw"):
        found = asked(settings, name)
        assert names(found.upstream) == ["etl/load"]
        assert names(found.downstream) == ["etl/sum", "dashboard/sum"]


def test_spark_s_runs_and_tracked_files_meet_in_one_dataset(settings: Settings) -> None:
    """The job of the real events reads what tracked files were written to, each named in another way."""
    sinks = {
        "orders": "/data/in/orders.csv",
        "slash": "/data/in/orders.csv/",
        "uri": "file:///data/in/customers.parquet",
        "host": "file://localhost/data/in/customers.parquet/",
    }
    track(settings, sinks)
    keep(settings.home, (EVENTS / "4.3.0-sql.jsonl").read_bytes().splitlines())
    upstream = names(asked(settings, "file:/data/4.3.0-sql/revenue").upstream)
    assert {f"{settings.system_name}/from-{sink}" for sink in sinks} < {*upstream}
    for place in sinks.values():
        assert "file:/data/4.3.0-sql/revenue" in names(asked(settings, place).downstream)


def test_the_partitions_that_spark_s_listener_names_beside_the_dataset_find_it(settings: Settings) -> None:
    keep(settings.home, (GRAPHS / "4.3.0-dated.jsonl").read_bytes().splitlines())
    for name in ("orders/2026-01-30", "2026-01-31", "file:/data/lake/orders/2026-01-31"):
        assert shown(asked(settings, name).node) == "file:/data/lake/orders"
    assert shown(asked(settings, "01/30").node) == "file:/data/lake/ymd"


def test_a_sink_hides_no_dataset_with_the_same_last_part(settings: Settings) -> None:
    track(settings, {"lake": "s3://raw/files"})
    keep(settings.home, [ran("spark/sum", [file("/data/lake")], [file("/data/sum")])])
    assert shown(asked(settings, "lake").node) == "file:/data/lake"


def test_a_bucket_of_tracked_files_and_one_of_spark_is_one(settings: Settings) -> None:
    """Spark's listener writes `s3://lake` for `s3a://lake`, and no slash after it."""
    track(settings, {"cloud": "s3a://lake/orders/", "dated": "s3://lake/orders/dt=2026-01-31"})
    keep(settings.home, [ran("spark/sum", [dataset("orders", "s3://lake")], [file("/data/sum")])])
    assert len(names(asked(settings, "file:/data/sum").upstream)) >= 4
    assert names(asked(settings, "s3a://lake/orders/").downstream) == ["spark/sum", "file:/data/sum"]


def test_what_is_forgotten_has_no_real_names_either(settings: Settings) -> None:
    keep_filed(settings, NIGHTS)
    assert shown(asked(settings, "dt=2026-01-30").node) == "file:/lake/orders"
    forgetful = settings.with_values({"lineage_retain_days": 1}, "tests")
    with closing(Journal(settings.home)) as journal, closing(Index(journal, forgetful, linger_s=0)) as kept:
        kept.step()
    for name in ("dt=2026-01-30", "file:/lake/orders", "etl/load"):
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, name)


@pytest.mark.parametrize("filed", [0, None])
def test_a_table_is_found_by_its_own_name_and_a_path_first(settings: Settings, filed: int | None) -> None:
    space = "postgres://db:5432"
    tables = [dataset(name, space) for name in ("shop.public.orders", "shop.old.orders", "shop.public.rates")]
    keep_filed(
        settings, [ran("etl/orders", tables, [file("/lake/rates"), file("/lake/a.orders.csv")])], filed
    )
    found = {
        "public.rates": f"{space}/shop.public.rates",
        "public.orders": f"{space}/shop.public.orders",
        "shop.old.orders": f"{space}/shop.old.orders",
        "rates": "file:/lake/rates",
        "orders": "etl/orders",
    }
    assert {name: shown(asked(settings, name).node) for name in found} == found
    for no_part in ("rders", "orders.csv", "blic.orders", "csv"):
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, no_part)


def test_a_dataset_without_a_namespace_is_shown_as_what_it_is(settings: Settings) -> None:
    table = "default_catalog.default_database.t"
    keep(settings.home, [ran("flink/count", [dataset(table, "")], [dataset("/data/out", "")])])
    for name in (table, "t", "default_database.t"):
        assert shown(asked(settings, name).node) == table
    assert names(asked(settings, table).downstream) == ["flink/count", "/data/out"]
    assert shown(asked(settings, "/data/out").node) == "/data/out"


SNOW, ORACLE, POSTGRES = "snowflake://acme", "oracle://db:1521", "postgres://db:5432"
INTS = {"id": "int", "total": "int"}


def by_columns(
    job: str, target: dict[str, Any], column: str, source: dict[str, Any], field: str
) -> dict[str, Any]:
    used = {"namespace": source["namespace"], "name": source["name"], "field": field}
    told = {"columnLineage": {"fields": {column: {"inputFields": [used]}}}}
    return ran(job, [source], [{**target, "facets": {**target["facets"], **told}}])


@pytest.mark.parametrize(
    ("namespace", "dialect", "is_schema_first"), [(SNOW, "snowflake", False), (ORACLE, "oracle", True)]
)
def test_a_column_has_one_name_in_capitals_and_small_letters_where_the_database_says_so(
    settings: Settings, namespace: str, dialect: str, *, is_schema_first: bool
) -> None:
    orders, daily = (dataset(f"SHOP.PUBLIC.{name}", namespace) for name in ("ORDERS", "DAILY"))
    schemas = [
        ran("etl/crawl", [], [dataset(one["name"], namespace, types=INTS)], minute)
        for minute, one in enumerate((orders, daily), 1)
    ]
    text = "INSERT INTO daily (total) SELECT total FROM orders"
    told = [
        ran("etl/load", [orders], [daily], sql=text, dialect=dialect),
        by_columns("etl/report", dataset("report"), "sum", daily, "total"),
    ]
    lineage = keep_filed(settings, [*schemas, *told] if is_schema_first else [*told, *schemas])
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
    with answers_of(settings.home) as answers:
        assert answers.answer(OfDetails(f"{daily['name']}.TOTAL")).types == {"total": "int"}


def test_columns_in_capitals_and_small_letters_are_two_where_a_schema_has_both_and_in_files(
    settings: Settings,
) -> None:
    sources = {
        f"{namespace}/s.p.a": (dataset("s.p.a", namespace, types={"total": "int", capital: "int"}), capital)
        for namespace, capital in ((POSTGRES, "Total"), (SNOW, "TOTAL"))
    }
    for name, (source, capital) in {**sources, "/lake/in.json": (file("/lake/in.json"), "TOTAL")}.items():
        columns = {"small": "total", "large": capital}
        lineage = keep(
            settings.home,
            [by_columns(f"etl/{of}", dataset(of), "x", source, column) for of, column in columns.items()],
        )
        for of, column in columns.items():
            found = [shown(one.node) for one in lineage.downstream(f"{name}.{column}")]
            assert found == [f"lake/{of}.x"]


def test_a_table_has_one_name_in_capitals_and_small_letters_where_the_database_says_so(
    settings: Settings,
) -> None:
    for number, namespace in ((1, SNOW), (2, ORACLE)):
        told, again = (dataset(f"{name}.ORDERS", namespace) for name in ("shop.public", "SHOP.PUBLIC"))
        events = [
            by_columns(f"etl/load{number}", told, "total", dataset("raw"), "amount"),
            by_columns(f"etl/sum{number}", dataset(f"sum{number}"), "x", again, "TOTAL"),
        ]
        keep(settings.home, events)
        for name in (told["name"], again["name"], "Shop.Public.Orders"):
            found = asked(settings, f"{namespace}/{name}")
            assert names(found.upstream) == [f"etl/load{number}", "lake/raw"]
            assert names(found.downstream) == [f"etl/sum{number}", f"lake/sum{number}"]
        assert names(asked(settings, f"lake/sum{number}.x").upstream)[-1] == "lake/raw.amount"
    quoted = [dataset(name, POSTGRES) for name in ("s.p.Orders", "s.p.orders")]
    assert len(keep(settings.home, [ran("etl/quoted", quoted)]).names(f"{POSTGRES}/s.p.Orders")) == 1


def test_a_column_is_found_under_every_name_of_its_dataset(settings: Settings) -> None:
    path = dataset("orders/", "s3a://lake", same=["hive:/lake.orders"])
    catalog = dataset("orders", "catalog", same=[dataset("orders", "s3://lake")], types={"note": "string"})
    told = [
        by_columns("etl/load", path, "total", dataset("raw"), "amount"),
        ran("etl/name", [], [catalog]),
    ]
    lineage = keep(settings.home, told)
    paths = ("s3a://lake/orders/", "s3://lake/orders", "s3://lake/orders/")
    for name in (*paths, "hive:/lake.orders", "catalog/orders"):
        assert names(asked(settings, f"{name}.total").upstream) == ["lake/raw.amount"]
        assert lineage.origins(f"{name}.note").steps == ()
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, f"{name}.other")


def test_a_table_in_capitals_is_found_in_small_letters_where_the_database_takes_both(
    settings: Settings,
) -> None:
    spaces = {f"DB{number}": namespace for number, namespace in enumerate((SNOW, ORACLE, POSTGRES))}
    for space, namespace in spaces.items():
        source = dataset(f"{space}.PUB.SRC{space}", namespace, types={"TOTAL": "int"})
        keep(settings.home, [by_columns(f"etl/{space}", dataset(space), "x", source, "TOTAL")])
    lineage = keep(settings.home, [ran("etl/copy", [file("/IN/ONE.CSV")], ["lake/one"], 9)])
    for space, namespace in spaces.items():
        table = f"{space}.PUB.SRC{space}"
        small = table.lower()
        for name in (small, small.removeprefix(f"{space.lower()}."), f"src{space.lower()}", table.title()):
            assert shown(asked(settings, name).node) == f"{namespace}/{table}", name
            for column in ("TOTAL", "total"):
                found = [shown(one.node) for one in lineage.impact(f"{name}.{column}").nodes]
                assert found == [f"etl/{space}", f"lake/{space}"], name
    for name in ("/in/one.csv", "one.csv", "LAKE/ONE", "ETL/COPY"):
        with pytest.raises(NotFoundError, match=NAMELESS):
            asked(settings, name)
    small_too = "db2.pub.srcdb2"
    keep(settings.home, [ran("etl/small", [dataset(small_too, POSTGRES)], ["lake/small"], 10)])
    assert shown(asked(settings, small_too).node) == f"{POSTGRES}/{small_too}"


def test_a_run_is_found_by_every_name_of_a_dataset_that_it_read(settings: Settings) -> None:
    path = dataset("orders/", "s3a://lake", same=["hive:/lake.orders"])
    told = [
        ran("etl/path", [path], ["lake/a"], 1),
        ran("etl/table", ["hive:/lake.orders"], ["lake/b"], 2),
        ran("etl/other", [dataset("other", "s3://lake")], ["lake/c"], 3),
        ran("etl/upper", [dataset("SHOP.P.T", SNOW)], ["lake/d"], 4),
    ]
    lineage = keep(settings.home, told)
    paths = [f"s3{letter}://lake/orders{slash}" for letter in ("a", "", "n") for slash in ("", "/")]
    found = {
        **dict.fromkeys([*paths, "hive:/lake.orders"], frozenset({"etl/path at 1", "etl/table at 2"})),
        **dict.fromkeys([f"{SNOW}/shop.p.t", "shop.p.t", f"{SNOW}/SHOP.P.T"], frozenset({"etl/upper at 4"})),
        "s3://lake/none": frozenset(),
    }
    for _ in range(2):  # as the tail, and in the index
        assert {name: {one.did for one in lineage.find(Query(input_dataset=name))} for name in found} == found
        assert flush(settings).problems == {}
