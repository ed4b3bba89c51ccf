"""The graph as OpenLineage events: put into an empty home, they give the same answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from events import members
from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import dataset, keep, ran, said_of

from waybill.lineage import Lineage, MissingPackageError
from waybill.lineage.drawing import openlineage_of
from waybill.lineage.graph import Edge, EdgeKind, Graph, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

REAL = Path(__file__).parents[1] / "facets" / "expected"
TIME = "2026-01-31T12:00:00Z"

DATASETS = st.sampled_from(["d0", "d1", "d2", 'a"b <c> -->\n🚀'])
COLUMNS = st.sampled_from(["x", "y"])
KINDS = st.sampled_from(
    [[{"type": "INDIRECT", "subtype": "FILTER"}], [{"type": "DIRECT", "masking": True}, {"type": "INDIRECT"}]]
)
DATASET = {"namespace": st.just("lake"), "name": DATASETS}
SOURCE = st.fixed_dictionaries({**DATASET, "field": COLUMNS}, optional={"transformations": KINDS})
FIELD = st.fixed_dictionaries({"inputFields": st.lists(SOURCE, max_size=2)})
FACET = st.fixed_dictionaries(
    {"fields": st.dictionaries(COLUMNS, FIELD, max_size=2)},
    optional={"dataset": st.lists(SOURCE, min_size=1, max_size=1)},
)
OUTPUT = st.fixed_dictionaries(DATASET, optional={"facets": st.fixed_dictionaries({"columnLineage": FACET})})
EVENT = st.fixed_dictionaries(
    {
        "job": st.sampled_from(["etl/j0", "etl/j1", "etl/j2"]),
        "inputs": st.lists(st.fixed_dictionaries(DATASET), max_size=2),
        "outputs": st.lists(OUTPUT, min_size=1, max_size=2),
    }
)


def graph_of(lineage: Lineage, name: str, depth: int | None) -> Graph:
    return Graph.of(lineage.dependencies(name, up=depth, down=depth, columns=True))


def told(graph: Graph) -> tuple[Any, ...]:
    """All of a graph but how jobs ran last, who told an edge, and when."""
    columns = [(some.dataset, edges_told(some.edges)) for some in graph.columns if some.edges]
    return graph.about, graph.distances, edges_told(graph.edges), columns


def edges_told(edges: Iterable[Edge]) -> list[tuple[Any, ...]]:
    return sorted(
        (one.source, one.kind, one.target, one.job, one.transformations or IMPLIED.get(one.kind), one.masking)
        for one in edges
    )


IMPLIED = {EdgeKind.INFLUENCE: ("INDIRECT",)}
"""By the kind of an edge, the transformation that is meant where none is told."""


def again(home: Path, graph: Graph) -> Lineage:
    return keep(home, (line.encode() for line in openlineage_of(graph, TIME)))


@hypothesis_settings(max_examples=8)
@given(events=st.lists(EVENT, min_size=1, max_size=4), depth=st.none() | st.integers(1, 2), data=st.data())
def test_the_events_of_an_answer_give_the_same_answer(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[dict[str, Any]],
    depth: int | None,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("events")
    lineage = keep(folder / "home", (members("r", "COMPLETE", TIME, **one) for one in events))
    outputs = [one for event in events for one in event["outputs"]]
    names = {f"lake/{one['name']}" for one in outputs}
    for one in outputs:
        fields = one.get("facets", {}).get("columnLineage", {}).get("fields", {})
        names |= {f"lake/{one['name']}.{name}" for name, field in fields.items() if field["inputFields"]}
    name = data.draw(st.sampled_from(sorted(names)))
    graph = graph_of(lineage, name, depth)
    assert told(graph_of(again(folder / "again", graph), name, depth)) == told(graph)


def test_what_real_spark_jobs_did_comes_back(tmp_path: Path) -> None:
    lineage = keep(tmp_path / "home", (REAL / "4.3.0-tables.jsonl").read_bytes().splitlines())
    for number, name in enumerate(("agg", "wh/lake.db/ctas", "ctas.country", "customers.parquet")):
        graph = graph_of(lineage, name, None)
        assert len(graph.edges) > 1
        assert told(graph_of(again(tmp_path / str(number), graph), name, None)) == told(graph)


def test_the_whole_graph_has_each_dataset_and_job_once(home: Path) -> None:
    told = [
        ran("etl/a", ["lake/in"], [dataset("out", same=["hive/out"])]),
        ran("etl/b", ["hive/out", "lake/self"], ["lake/self"]),
        said_of("lake/alone"),
    ]
    lineage = keep(home, told)
    network = lineage.graph()
    out = next(shown(node) for node in network if node.name == "out")
    assert sorted(map(shown, network)) == sorted(
        ["etl/a", "etl/b", "lake/alone", "lake/in", "lake/self", out]
    )
    assert {(shown(of), kind, shown(to)) for of, to, kind in network.edges(keys=True)} == {
        ("lake/in", "read", "etl/a"),
        ("etl/a", "write", out),
        (out, "read", "etl/b"),
        ("lake/self", "read", "etl/b"),
        ("etl/b", "write", "lake/self"),
    }
    with pytest.raises(ValueError, match="give a name"):
        lineage.graph(columns=True)


def test_python_has_an_answer_as_a_graph_of_networkx(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lineage = keep(home, [ran("etl/a", ["lake/in"], ["lake/out"])])
    network = lineage.graph("lake/out")
    assert [(shown(of), kind, shown(to)) for of, to, kind in network.edges(keys=True)] == [
        ("etl/a", "write", "lake/out"),
        ("lake/in", "read", "etl/a"),
    ]
    told = {shown(node): (data["distance"], data["state"]) for node, data in network.nodes(data=True)}
    assert told == {"lake/out": (0, None), "etl/a": (1, "COMPLETE"), "lake/in": (2, None)}
    assert lineage.graph("lake/out", up=1).number_of_nodes() == 2
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingPackageError, match="pip install networkx"):
        lineage.graph("lake/out")
