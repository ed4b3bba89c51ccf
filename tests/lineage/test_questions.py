"""What a change reaches and where a column comes from, against a naive model of the same events."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import dataset, keep, keep_filed, ran, settings_in

from waybill.lineage.graph import shown
from waybill.transport import NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.lineage import Impact, ImpactedNode
    from waybill.transport import Settings


def by_name(impact: Impact) -> dict[str, ImpactedNode]:
    return {shown(one.node): one for one in impact.nodes}


TEAM = {"owners": [{"name": "team:sales", "type": "MAINTAINER"}, {"name": "ada"}]}
GOLD = {
    "tags": [{"key": "tier", "value": "gold", "source": "tests"}, {"key": "tier", "value": "x", "field": "a"}]
}
REPORT = {"sum": [("orders", "total", "DIRECT")], "state": [("orders", "state", "DIRECT")]}
TOLD = [
    ran("etl/load", ["lake/raw"], [dataset("orders", derived={"total": [("raw", "amount", "DIRECT")]})]),
    ran(
        "etl/sum",
        ["lake/orders"],
        [dataset("report", derived=REPORT, ownership=TEAM, tags=GOLD)],
        run="run of etl/sum",
        sql="SELECT sum(total), state FROM orders",
        ownership={"owners": [{"name": "bob"}]},
    ),
    ran("etl/mail", ["lake/report"], ["smtp/mails"]),
]


@pytest.mark.parametrize("filed", [0, None])
def test_a_change_reaches_everything_downstream_with_whom_to_ask(
    settings: Settings, filed: int | None
) -> None:
    lineage = keep_filed(settings, TOLD, filed)
    found = by_name(lineage.impact("lake/raw"))
    assert {name: (one.distance, one.columns) for name, one in found.items()} == {
        "etl/load": (1, ()),
        "lake/orders": (2, ("total",)),
        "etl/sum": (3, ()),
        "lake/report": (4, ("sum",)),
        "etl/mail": (5, ()),
        "smtp/mails": (6, ()),
    }
    report, job = found["lake/report"], found["etl/sum"]
    assert (report.owners, report.tier, job.owners, job.tier) == (
        ("ada", "team:sales"),
        "gold",
        ("bob",),
        None,
    )
    assert job.last_run is not None
    assert (job.last_run.run, job.last_run.state, report.last_run) == ("run of etl/sum", "COMPLETE", None)
    assert all(one.is_certain for one in found.values())
    assert [one.distance for one in lineage.impact("etl/sum").nodes] == [1, 2, 3]
    assert by_name(lineage.impact("etl/sum"))["lake/report"].columns == ("state", "sum")


def test_a_change_of_a_column_reaches_what_comes_from_it_and_perhaps_jobs_that_tell_no_columns(
    home: Path,
) -> None:
    found = by_name(keep(home, TOLD).impact("orders.total"))
    assert {name: (one.distance, one.columns, one.is_certain) for name, one in found.items()} == {
        "etl/sum": (1, (), True),
        "lake/report": (2, ("sum",), True),
        "etl/mail": (3, (), False),
    }


def test_what_is_told_last_of_owners_and_the_latest_run_count(settings: Settings) -> None:
    written = [dataset("out", owners=[owner]) for owner in ("ada", "bob")]
    told = [
        ran("etl/daily", ["lake/in"], written[:1]),
        ran("etl/daily", ["lake/in"], written[1:], 60, "FAIL", run="later"),
    ]
    found = by_name(keep_filed(settings, told, 1).impact("lake/in"))
    run = found["etl/daily"].last_run
    assert run is not None
    assert (found["lake/out"].owners, run.run, run.state) == (("bob",), "later", "ERROR")


def test_a_column_reaches_each_job_that_makes_another_and_a_dataset_with_two_names_once(home: Path) -> None:
    total = {"total": [("raw", "amount", "DIRECT")]}
    tax = dataset("orders", derived={"tax": [("raw", "amount")]}, owners=["eve"]) | {"namespace": "hive"}
    lineage = keep(
        home,
        [
            ran(
                "etl/load",
                ["lake/raw"],
                [dataset("orders", derived=total, same=["hive/orders"], ownership=TEAM)],
            ),
            ran("etl/again", ["lake/raw"], [dataset("orders", derived=total)]),
            ran("etl/tax", ["lake/raw"], [tax]),
            ran("etl/sum", ["hive/orders"], [dataset("report", derived={"sum": [("orders", "total")]})]),
            ran("etl/show", ["lake/orders", "lake/report"]),
        ],
    )
    found = lineage.impact("lake/raw.amount").nodes
    assert [(one.distance, one.node.name, one.columns, one.is_certain) for one in found] == [
        (1, "again", (), True),
        (1, "load", (), True),
        (1, "tax", (), True),
        (2, "orders", ("tax", "total"), True),
        (3, "show", (), False),
        (3, "sum", (), True),
        (4, "report", ("sum",), True),
    ]
    assert found[3].owners == ("ada", "eve", "team:sales")


def test_a_column_that_only_a_schema_names_goes_on_under_the_dataset_s_other_name(home: Path) -> None:
    tables = [dataset("orders", same=["hive/orders"]), dataset("orders", "hive", types={"total": "int"})]
    report = dataset("report", derived={"sum": [("orders", "total")]})
    lineage = keep(home, [ran("etl/load", [], tables), ran("etl/sum", ["lake/orders"], [report])])
    for name in ("hive/orders.total", "lake/orders.total"):
        assert [shown(one.node) for one in lineage.downstream(name)] == ["lake/report.sum"]


def test_a_column_s_origins_are_the_steps_back_to_the_ends(home: Path) -> None:
    masking = {"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True}
    masked = dataset("mails", derived={"who": [("report", "sum"), ("report", "state", "INDIRECT")]})
    masked["facets"]["columnLineage"]["fields"]["who"]["inputFields"][0]["transformations"] = [masking]
    found = keep(home, [*TOLD, ran("etl/mask", ["lake/report"], [masked])]).origins("mails.who")
    assert [
        (shown(step.source), shown(step.target), step.how, step.is_masked, step.job and step.job.name)
        for step in found.steps
    ] == [
        ("lake/report.sum", "lake/mails.who", "direct", True, "mask"),
        ("lake/report.state", "lake/mails.who", "indirect", False, "mask"),
        ("lake/orders.state", "lake/report.state", "direct", False, "sum"),
        ("lake/orders.total", "lake/report.sum", "direct", False, "sum"),
        ("lake/raw.amount", "lake/orders.total", "direct", False, "load"),
    ]
    assert {shown(end) for end in found.ends} == {"lake/orders.state", "lake/raw.amount"}
    assert [(text.job.name, text.sql) for text in found.texts] == [
        ("sum", "SELECT sum(total), state FROM orders")
    ]


def test_an_origin_that_is_guessed_from_equal_names_is_said_to_be_a_guess(settings: Settings) -> None:
    source, copy = (dataset(name, types={"id": "int"}) for name in "ab")
    known = dataset("c", derived={"id": [("a", "id", "DIRECT")]})
    told = [ran("etl/copy", [source], [copy]), ran("etl/derive", [source], [known])]
    lineage = keep_filed(settings, told)
    for name, is_guess in (("b", True), ("c", False)):
        steps = lineage.origins(f"lake/{name}.id").steps
        assert [(shown(one.source), one.is_guess) for one in steps] == [("lake/a.id", is_guess)]


def test_of_a_column_that_only_a_schema_names_nothing_is_known(home: Path) -> None:
    schema = {"fields": [{"name": "id"}, {"name": "who", "fields": [{"name": "mail.home"}]}]}
    lineage = keep(home, [ran("etl/load", [dataset("people", schema=schema)])])
    for column in ("id", "who", "who.mail.home"):
        found = lineage.origins(f"lake/people.{column}")
        assert (found.column.column, found.steps, found.ends) == (column, (), ())
        assert [(shown(one.node), one.is_certain) for one in lineage.impact(f"people.{column}").nodes] == [
            ("etl/load", False)
        ]
    for name in ("people.name", "lake/people.mail.home"):
        with pytest.raises(NotFoundError, match="no dataset, column or job has the name"):
            lineage.origins(name)
    with pytest.raises(NotFoundError, match="lake/people is a dataset, no column"):
        lineage.origins("people")


Column = tuple[int, int]
COLUMNS = st.tuples(st.integers(0, 3), st.integers(0, 2))
WRITTEN = st.dictionaries(st.integers(0, 2), st.frozensets(COLUMNS, max_size=2), min_size=1, max_size=2)
WRITES = st.lists(st.tuples(st.integers(0, 3), WRITTEN), min_size=1, max_size=5)


@hypothesis_settings(max_examples=8)
@given(WRITES, st.integers(0, 5))
def test_columns_are_reached_and_come_from_as_in_the_model_wherever_the_events_are(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[tuple[int, dict[int, frozenset[Column]]]],
    filed: int,
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("questions"))
    told, edges = [], set()
    for number, (target, columns) in enumerate(writes):
        sources = {
            f"c{column}": [(f"d{of}", f"c{field}") for of, field in sorted(some)]
            for column, some in columns.items()
        }
        reads = sorted({f"lake/d{of}" for some in columns.values() for of, _ in some})
        told.append(ran(f"etl/j{number}", reads, [dataset(f"d{target}", derived=sources)]))
        edges |= {(source, (target, column)) for column, some in columns.items() for source in some}
    lineage = keep_filed(settings, told, filed)
    for source in {end for edge in edges for end in edge}:
        reached = reach(source, edges)
        found: defaultdict[int, set[int]] = defaultdict(set)
        for of, column in reached - {source}:
            found[of].add(column)
        name = f"lake/d{source[0]}.c{source[1]}"
        impacted = [one for one in lineage.impact(name).nodes if one.columns]
        assert {
            int(one.node.name[1:]): {int(column[1:]) for column in one.columns} for one in impacted
        } == found
        sources_of = reach(source, {(far, near) for near, far in edges})
        origins = lineage.origins(name)
        assert {shown(step.source) for step in origins.steps} == {
            f"lake/d{of}.c{at}" for of, at in sources_of
        }
        targets = {target for _, target in edges}
        assert {shown(end) for end in origins.ends} == {
            f"lake/d{of}.c{at}" for of, at in sources_of if (of, at) not in targets
        }


def reach(start: Column, edges: set[tuple[Column, Column]]) -> set[Column]:
    """All that follows from a column, edge by edge."""
    reached: set[Column] = set()
    frontier = {start}
    while frontier:
        frontier = {far for near, far in edges if near in frontier} - reached
        reached |= frontier
    return reached
