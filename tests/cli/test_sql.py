"""`waybill sql`, over a layout that the Tracker and `waybill flush` made."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
from hypothesis import given, strategies as st
from layouts import record

from waybill.cli.sql_views import CORRELATION_VIEWS
from waybill.exporter.relations import RELATIONS_SCHEMA
from waybill.facets.arrow import to_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from conftest import Kept, Run


FEW_FILES = """
import os, resource, sys
from waybill.cli.app import main
from waybill.cli.commands import sql

make_views = sql._make_views

def made_views(*given):
    make_views(*given)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))

sql._make_views = made_views
main()
"""
"""How many files DuckDB opens at once is a matter of time: here it can open none more."""


def test_more_files_than_may_be_open_are_an_error_that_says_what_to_do(
    called: Run, kept: Kept, tmp_path: Path
) -> None:
    good = next((kept.home / "provenance/compacted").rglob("*.parquet"))
    for at in range(3):
        copy = tmp_path / f"root/provenance/compacted/s-{at}/20260101/00.parquet"
        copy.parent.mkdir(parents=True)
        shutil.copy(good, copy)
    arguments = ("sql", "FROM provenance", "--root", tmp_path / "root")
    assert called(*arguments).returncode == 0
    limited: list[str | Path] = [sys.executable, "-c", FEW_FILES, *arguments]
    done = subprocess.run(limited, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert "raise the hard limit (`ulimit -Hn`), or use `waybill find`" in done.stderr


DIDS = "abcdefgh"


def depths(edges: Iterable[tuple[str, str]], start: str) -> dict[str, int]:
    """Everything that edges lead to from a start, and in how many steps at least."""
    found, now = {start: 0}, {start}
    for depth in itertools.count(1):
        now = {to for of, to in edges if of in now} - found.keys()
        if not now:
            return found
        found |= dict.fromkeys(now, depth)
    raise AssertionError


@given(
    st.lists(st.tuples(st.sampled_from(DIDS), st.sampled_from(DIDS)), max_size=14),
    st.lists(st.tuples(st.sampled_from(DIDS), st.sampled_from(DIDS)), max_size=5),
)
def test_the_view_of_all_ancestors_has_what_a_walk_along_the_edges_finds(
    named: list[tuple[str, str]], further: list[tuple[str, str]]
) -> None:
    edges = [*named, *further]
    files = {did for _, did in named} | {did for edge in edges for did in edge}
    with duckdb.connect() as connection:
        connection.register("provenance", to_table([record(child, parent_did=of) for of, child in named]))
        rows = [{"did": child, "kind": "parent", "value": of, "time": 0} for of, child in further]
        connection.register("relations", pa.Table.from_pylist(rows, RELATIONS_SCHEMA))
        connection.execute(CORRELATION_VIEWS)
        found = connection.sql("SELECT id_parent, id_child, depth FROM correlation_lineage").fetchall()
    expected = [(of, did, depth) for of in files for did, depth in depths(edges, of).items()]
    assert sorted(found) == sorted(expected)
