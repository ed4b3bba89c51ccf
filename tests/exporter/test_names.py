from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import example, given, strategies as st
from layouts import Layout, record

from waybill.exporter.names import RawName, hour_of, safe_name
from waybill.lineage import find

AWKWARD = [
    "../../x",
    "a/b",
    "a'b",
    "",
    ".",
    "..",
    "…/é",
    "a" * 300,
    "é" * 300,
    "\0",
    "_hidden",
    "%2F",
    "a.b",
    "~",
    "a\nb",
    " ",
]


@pytest.mark.parametrize(
    ("system_name", "name"),
    [
        ("deltafi-east_1", "deltafi-east_1"),
        ("core.example.org", "core.example.org"),
        ("../../x", "%2E.%2F..%2Fx"),
        ("a/b", "a%2Fb"),
        ("a'b", "a%27b"),
        ("_spark", "%5Fspark"),
        ("é", "%C3%A9"),
        ("end.", "end%2E"),
        ("", "~e3b0c44298fc1c14"),
        ("a" * 200, "a" * 200),
        ("a" * 201, "a" * 183 + "~" + "cfa2fb7161d6cd4d"),
    ],
)
def test_a_safe_name_encodes_what_a_folder_name_cannot_hold(system_name: str, name: str) -> None:
    found = safe_name(system_name)
    if len(system_name) > 200:
        assert re.fullmatch(r"a{183}~[0-9a-f]{16}", found)
    else:
        assert found == name


@given(st.text())
@example("../../x")
@example("\0")
def test_a_safe_name_is_one_visible_part_of_a_path(system_name: str) -> None:
    name = safe_name(system_name)
    assert re.fullmatch(r"[A-Za-z0-9%~-][A-Za-z0-9_.%~-]*", name)
    assert len(name) <= 200
    assert not name.endswith(".")
    assert PurePosixPath("root", name).parts == ("root", name)


@given(st.sampled_from(AWKWARD) | st.text(), st.sampled_from(AWKWARD) | st.text())
def test_different_systems_have_different_safe_names(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@given(
    st.text(alphabet="ab/.", min_size=190, max_size=210), st.text(alphabet="ab/.", min_size=190, max_size=210)
)
def test_long_names_with_one_beginning_stay_apart(one: str, other: str) -> None:
    assert (safe_name("x" * 190 + one) == safe_name("x" * 190 + other)) == (one == other)


def test_every_awkward_system_keeps_its_rows_and_its_full_name_below_the_root(layout: Layout) -> None:
    written = [record(f"did-{at}", system_name=name) for at, name in enumerate(AWKWARD)]
    layout.add(*written)
    assert sorted(row.system_name for row in layout.rows()) == sorted(AWKWARD)
    assert {row.did for row in find(layout.root)} == {one.did for one in written}
    outside = [path for path in layout.root.parent.rglob("*.parquet") if not path.is_relative_to(layout.root)]
    assert outside == []


@given(st.integers(0, 253_402_300_799_999))
def test_a_record_belongs_to_the_hour_that_holds_its_instant(completed_ms: int) -> None:
    hour = hour_of(completed_ms)
    assert hour.start_ms <= completed_ms < hour.end_ms
    assert re.fullmatch(r"[0-9]{8}", hour.day)
    assert re.fullmatch(r"[0-9]{2}", hour.hour)


@given(st.from_regex(r"[0-9a-f]{12}", fullmatch=True), st.integers(1), st.integers(0))
def test_a_raw_name_is_read_back_as_it_was_written(node: str, first: int, more: int) -> None:
    raw = RawName(node, first, first + more)
    assert RawName.parse(str(raw)) == raw


@pytest.mark.parametrize(
    "name",
    ["x.parquet", "n-1.parquet", "n-2-1.parquet", "n-0-1.parquet", ".n-1-2.parquet.0a.tmp", "n-1-2.csv"],
)
def test_what_is_no_raw_name_is_left_alone(layout: Layout, name: str) -> None:
    layout.write(record())
    strange = layout.raw()[0].with_name(name)
    strange.write_bytes(b"no Parquet")
    report = layout.compactor().compact()
    assert not report.unreadable
    assert [row.did for row in layout.rows()] == ["did-1"]
    assert strange.exists()
    assert Path(strange).read_bytes() == b"no Parquet"
