"""One name for a dataset: how paths are spelled, and which of their parts are no name."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from waybill.lineage.graph import OfDependencies
from waybill.lineage.graph.naming import locate, trim_name
from waybill.lineage.index import IndexReader
from waybill.transport import NotFoundError, Settings, SettingsError
from waybill.transport.config import TRIMMERS

OF_OPENLINEAGE = {
    "/data": """
        /data/20250721 /data/20250722T0901Z /data/2025-07-22 /data/20250722T901Z /data/key=value /data/2025/07
        /data/2025/07/21 /data/202507 /data/2025-07 /data/22.07.2025
    """,
    "data": "data/20250721 data/key=value",
    "/lake/orders": "/lake/orders/dt=2025-09-01/hour=05",
    "": """
        /data/20122321 /data/dataset_20122321 20250721 /20250721 /data/a=b=c /key=value /data/2025/14
        /data/2025/07/50 2025/07/21 /2025/07 /data/202540
    """,
}
"""The cases of the tests of OpenLineage's own trimmers: by dataset, the paths that are its; others stay."""
OF_OUR_OWN = {
    "orders.csv": """
        orders_2026-01-31.csv orders_2026-01-31-10.csv 2026-01-31_orders.csv orders_2026-01.csv
        dt=2026-01-31/orders.csv
    """,
    "orders.parquet": "orders-20260131T0100.parquet",
    "orders.csv.gz": "orders_20260131_010203.csv.gz",
    "orders.json": "orders.2026-01-31T01:02:03.456Z.json",
    "orders_eu.csv": "orders_2026-01-31_eu.csv",
    "orders.xlsx": "orders_31.01.2026.xlsx",
    "lake/orders": "lake/orders/2026-01-31.csv.gz",
    "/lake": "/lake/2026/01/31/05",
    "/lake/orders.csv": "/lake/2026/01/31/orders.csv",
    "/lake/orders": """
        /lake/orders/dt=1/part-00000-87c932a3-3483-4133-aef3-4709c57a4497-c000.snappy.parquet
        /lake/orders/part-r-00007
    """,
    "": """
        2026-01-31.csv orders_20261331.csv id_1730412010000.csv v1.2.3.csv /warehouse/lake.db/orders_20240101
        /data/4.3.0-sql/revenue /
    """,
}


def test_a_path_is_the_dataset_that_it_belongs_to() -> None:
    rows = [(name, to or name) for of in (OF_OPENLINEAGE, OF_OUR_OWN) for to in of for name in of[to].split()]
    for name, trimmed in (*rows, ("orders_2026-01-31 10:00:05.csv", "orders.csv")):
        assert trim_name("file", name) == trimmed
        assert trim_name("s3://lake", name) == trimmed


@pytest.mark.parametrize(
    "namespace", ["warehouse", "postgres://db:5432", "kafka://k:9092", "file:/data/wh", "s3", ""]
)
def test_a_name_that_is_no_path_stays(namespace: str) -> None:
    for name in ("orders_2024", "lake.orders_2024-01-01", "orders/dt=2026-01-31", "orders_2026-01-31.csv"):
        assert trim_name(namespace, name) == name
        assert locate(namespace, f"{name}/") == (namespace, f"{name}/")


@pytest.mark.parametrize("rule", TRIMMERS)
def test_each_rule_alone_does_its_part(rule: str) -> None:
    names = {
        "date": "/lake/2026-01-31",
        "key-value": "/lake/dt=1",
        "multi-dir-date": "/lake/2026/01",
        "year-month": "/lake/2026-01",
        "part-file": "/lake/part-00000.parquet",
        "dated-file": "/lake/2026-01-31.csv",
    }
    assert trim_name("file", names[rule], (rule,)) == "/lake"
    others = tuple(other for other in TRIMMERS if other != rule)
    assert trim_name("file", names[rule], others) == names[rule]
    assert trim_name("file", names[rule], ()) == names[rule]


@pytest.mark.parametrize(
    ("namespace", "name", "located"),
    [
        ("file", "/data/lake/", ("file", "/data/lake")),
        ("file:", "/data//lake", ("file", "/data/lake")),
        ("file://", "/data/lake", ("file", "/data/lake")),
        ("file:///", "/data/lake", ("file", "/data/lake")),
        ("file://localhost", "/data/lake", ("file", "/data/lake")),
        ("file://nas", "/data/lake", ("file://nas", "/data/lake")),
        ("s3a://lake", "/raw/", ("s3://lake", "raw")),
        ("s3://lake", "raw//a", ("s3://lake", "raw//a")),
        ("gs://lake", "/", ("gs://lake", "/")),
        ("abfss://c@a.dfs.core.windows.net", "/raw", ("abfss://c@a.dfs.core.windows.net", "raw")),
        ("hdfs://name:8020/", "/raw/", ("hdfs://name:8020", "/raw")),
    ],
)
def test_one_place_has_one_spelling(namespace: str, name: str, located: tuple[str, str]) -> None:
    assert locate(namespace, name) == located
    assert locate(*located) == located


PARTS = [
    "",
    "lake",
    "2026-01-31",
    "20260131",
    "2026",
    "01",
    "31",
    "dt=1",
    "part-0",
    "a_2026-01-31.csv",
    "x.csv",
]
NAMES = st.one_of(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=9).map("/".join),
    st.text("0123456789-_.T/=a\n\ud800", max_size=30),
    st.from_regex(
        r"[a-z_.-]{0,4}(20\d{2}-?[01]\d-?[0-3]\d[-_.T]?){1,3}[a-z_.]{0,5}\.(csv|gz|csv\.gz)", fullmatch=True
    ),
)


@given(NAMES, st.sets(st.sampled_from(TRIMMERS)).map(tuple))
def test_trimming_twice_changes_nothing_more_and_leaves_a_name(name: str, rules: tuple[str, ...]) -> None:
    trimmed = trim_name("file", name, rules)
    assert trim_name("file", trimmed, rules) == trimmed
    assert bool(trimmed.strip("/")) == bool(name.strip("/"))
    assert locate("file", locate("file", name)[1]) == locate("file", name)


def test_hostile_names_take_little_time() -> None:
    parts = (
        "/a//dt=1",
        "x_2026-01-31.csv/dt=1/",
        "1",
        "2026-01-31",
        "a.",
        "/2026-01-31.csv",
        "_20260131",
        "T:.-",
        "=",
    )
    began_s = time.process_time()
    for part in parts:
        trim_name("s3://lake", (part * 4_096)[:4_096])
    assert time.process_time() - began_s < 1


def test_the_setting_takes_names_of_rules_and_may_be_empty() -> None:
    def loaded(value: object) -> tuple[str, ...]:
        return Settings.load({"dataset_trimmers": value}, env={}).dataset_trimmers

    assert Settings.load({}, env={}).dataset_trimmers == TRIMMERS
    assert loaded("key-value, date") == loaded(["date", "key-value"]) == ("date", "key-value")
    assert loaded("") == loaded([]) == ()
    with pytest.raises(SettingsError, match="give some of date, key-value"):
        loaded("date,DateTrimmer")


@pytest.mark.parametrize("part", ["/", "a=b/", "x.", "x:", "2026-01-31/", "_%", "/x"])
def test_looking_for_a_long_name_takes_time_in_proportion_to_its_length(tmp_path: Path, part: str) -> None:
    def took_s(reader: IndexReader, chars: int) -> float:
        name = "s3://b/" + (part * chars)[: chars - 12] + "a=b/x"
        began_s = time.thread_time()
        with pytest.raises(NotFoundError, match="has the name"):
            reader.answer(OfDependencies(name, columns=True))
        return time.thread_time() - began_s

    with IndexReader.of([], [], tmp_path) as reader:
        took_s(reader, 1_000)
        short_s, long_s = (min(took_s(reader, chars) for _ in range(3)) for chars in (1_000, 4_000))
    assert long_s < 8 * max(short_s, 0.005)
