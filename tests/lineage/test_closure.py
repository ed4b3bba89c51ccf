"""The closure as a table: it holds what a walk along the edges finds, however they came."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import apsw
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from waybill.exporter.query import scan
from waybill.lineage import Lineage
from waybill.lineage.index import INDEX_NAME, Closure, Index
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from waybill.exporter import Query
    from waybill.lineage import Journey

DIDS = "abcdefgh"
EDGES = st.lists(st.tuples(st.sampled_from(DIDS), st.sampled_from(DIDS)), max_size=14)
"""Each a parent and a child: trees, joins, late parents and circles, in any order, some twice."""

Rows = list[tuple[object, ...]]


def closure_in_memory() -> Closure:
    closure = Closure(apsw.Connection(":memory:"))
    closure.make()
    return closure


def depths(edges: Iterable[tuple[str, str]], start: str) -> dict[str, int]:
    """Everything that edges lead to from a start, and in how many steps at least."""
    found, now = {start: 0}, {start}
    for depth in itertools.count(1):
        now = {to for of, to in edges if of in now} - found.keys()
        if not now:
            return found
        found |= dict.fromkeys(now, depth)
    raise AssertionError


@hypothesis_settings(max_examples=60)
@given(edges=EDGES)
def test_the_table_has_the_answers_of_a_walk_along_the_edges(edges: list[tuple[str, str]]) -> None:
    closure = closure_in_memory()
    closure.add([(child, (parent,), 5) for parent, child in edges])
    turned = [(child, parent) for parent, child in edges]
    for did in {did for edge in edges for did in edge}:
        down, up = closure.kin(did, up=False), closure.kin(did, up=True)
        assert dict(down) == depths(edges, did)
        assert dict(up) == depths(turned, did)
        assert [depth for _, depth in down] == sorted(depth for _, depth in down)
        assert len(up) == len(dict(up))
    assert closure.kin("unknown", up=True) == []


@hypothesis_settings(max_examples=60)
@given(
    edges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7))),
    days=st.lists(st.integers(1, 9), min_size=8, max_size=8),
    until=st.integers(1, 10),
)
def test_old_files_are_forgotten_unless_a_file_that_stays_came_from_them(
    edges: list[tuple[int, int]], days: list[int], until: int
) -> None:
    parents = [tuple(DIDS[a] for a, b in edges if b == at) for at in range(len(DIDS))]
    told = [(did, parents[at], days[at]) for at, did in enumerate(DIDS)]
    named = [(DIDS[b], DIDS[a]) for a, b in edges]
    young = [did for did, _, day in told if day >= until]
    staying = {above for did in young for above in depths(named, did)}
    aged, fresh = closure_in_memory(), closure_in_memory()
    aged.add(told)
    aged.forget(until)
    fresh.add([one for one in told if one[0] in staying])
    for did in DIDS:
        assert aged.kin(did, up=True) == fresh.kin(did, up=True)
        assert aged.kin(did, up=False) == fresh.kin(did, up=False)


class Site:
    """A home whose index is kept up step by step."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.journal = Journal(settings.home)

    def append(self, *edges: tuple[str, str | None]) -> None:
        said = {"finalState": "COMPLETE", "created": 1_000, "completed": 2_000}
        records = [{"did": did, "parentDid": parent, **said} for did, parent in edges]
        self.journal.append(Kind.PROVENANCE, json.dumps(records).encode())

    def catch_up(self, *, closure_table: bool = True) -> None:
        settings = self.settings.with_values({"closure_table": closure_table}, "tests")
        with contextlib.closing(Index(self.journal, settings, linger_s=0)) as index:
            while index.step().applied:
                pass

    def rows(self, query: str, *bindings: str) -> Rows:
        """As anyone sees them who opens the file."""
        flags = apsw.SQLITE_OPEN_READONLY
        with contextlib.closing(apsw.Connection(str(self.settings.home / INDEX_NAME), flags=flags)) as opened:
            return list(opened.execute(query, bindings))


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    one = Site(settings)
    yield one
    one.journal.close()


ALL = "SELECT id_parent, id_child, depth FROM correlation_lineage ORDER BY depth, id_parent, id_child"


def test_a_child_and_a_grandchild_and_another_child_give_eight_rows(site: Site) -> None:
    site.append(("aaa", None), ("bbb", "aaa"))
    site.catch_up()
    site.append(("ccc", "bbb"), ("eee", "aaa"))
    site.catch_up()
    selves = [(one, one, 0) for one in ("aaa", "bbb", "ccc", "eee")]
    assert site.rows(ALL) == [
        *selves,
        ("aaa", "bbb", 1),
        ("aaa", "eee", 1),
        ("bbb", "ccc", 1),
        ("aaa", "ccc", 2),
    ]


def test_one_did_in_another_spelling_is_one_file(site: Site) -> None:
    did = "01a1fd6a-9e75-7d78-870f-000000000001"
    site.append((did, "p"), ("c", did.upper()))
    site.catch_up()
    assert ("p", "c", 2) in site.rows(ALL)


def test_all_ancestors_and_all_descendants_are_one_query_that_scans_no_table(site: Site) -> None:
    site.append(("b", "a"), ("c", "b"))
    site.catch_up()
    up = "SELECT id_parent, depth FROM correlation_lineage WHERE id_child = ? ORDER BY depth DESC"
    down = "SELECT id_child, depth FROM correlation_lineage WHERE id_parent = ? ORDER BY depth"
    assert site.rows(up, "c") == [("a", 2), ("b", 1), ("c", 0)]
    assert site.rows(down, "a") == [("a", 0), ("b", 1), ("c", 2)]
    for query in (up, down):
        assert not [row for row in site.rows(f"EXPLAIN QUERY PLAN {query}", "a") if "SCAN" in str(row)]


def test_the_setting_makes_the_table_from_all_entries_and_removes_it(site: Site) -> None:
    site.append(("b", "a"))
    site.catch_up(closure_table=False)
    with pytest.raises(apsw.SQLError, match="no such table"):
        site.rows(ALL)
    site.append(("c", "b"))
    site.catch_up()
    assert ("a", "c", 2) in site.rows(ALL)
    site.catch_up(closure_table=False)
    with pytest.raises(apsw.SQLError, match="no such table"):
        site.rows(ALL)


def test_with_the_table_a_journey_takes_as_many_questions_however_long_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Query] = []

    def counted(root: Path, query: Query, **given: Any) -> Iterator[Any]:  # noqa: ANN401 - as scan takes them
        asked.append(query)
        return scan(root, query, **given)

    def trace(did: str) -> tuple[Journey, int]:
        asked.clear()
        return Lineage.open(site.settings.home).trace(did), len(asked)

    monkeypatch.setattr("waybill.lineage.answers.home.scan", counted)
    site.append(("0", None), *((str(at), str(at - 1)) for at in range(1, 30)))
    site.catch_up(closure_table=False)
    walked, without = trace("15")
    site.catch_up()
    assert trace("15")[0] == walked
    site.append(("30", "29"))  # which the table does not have yet
    journey, questions = trace("15")
    assert journey.files.keys() == {str(at) for at in range(31)}
    assert questions < without / 2


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_batches_make_no_difference(site: Site, cut: int) -> None:
    edges: Sequence[tuple[str, str]] = [("c", "b"), ("b", "a"), ("c", "a"), ("a", "c")]
    for part in (edges[:cut], edges[cut:]):
        site.append(*part)
        site.catch_up()
    assert [row for row in site.rows(ALL) if row[2]] == [
        ("a", "b", 1),
        ("a", "c", 1),
        ("b", "c", 1),
        ("c", "a", 1),
        ("b", "a", 2),
        ("c", "b", 2),
    ]
