"""The graphs of real Spark jobs, against those of a reader of their code: see `spark_graphs/README.md`."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from waybill.lineage import Lineage
from waybill.lineage.graph import shown
from waybill.transport import Journal, Kind, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.lineage.graph import Dependencies

EVENTS = Path(__file__).parents[1] / "facets" / "expected"
GRAPHS = Path(__file__).parent / "spark_graphs"
KINDS = {"read", "write", "derive", "influence"}

Edges = set[tuple[str, str, str]]


def drawn_by_hand(graph: dict[str, Any]) -> Edges:
    """The edges of a graph that was written down, with a dot between a dataset and its column."""

    def column(text: str) -> str:
        return f"file:{text.replace(':', '.')}"

    edges = set()
    for job, told in graph["jobs"].items():
        edges |= {(f"file:{name}", "read", f"waybill-test/{job}") for name in told.get("reads", ())}
        edges |= {(f"waybill-test/{job}", "write", f"file:{name}") for name in told.get("writes", ())}
    for dataset, columns in graph["columns"].items():
        rows = columns.pop("rows", [])
        edges |= {(column(one), "influence", f"file:{dataset}") for one in rows}
        for name, told in columns.items():
            target = column(f"{dataset}:{name}")
            edges |= {(column(one), "derive", target) for one in told.get("from", ())}
            edges |= {(column(one), "influence", target) for one in told.get("by", ())}
            edges |= {(f"file:{dataset}", "influence", target) for _ in rows}
    return edges


def named_in(event: dict[str, Any]) -> Iterator[str]:
    """The job, the datasets and the columns that an event names."""
    yield f"waybill-test/{event['job']['name']}"
    for dataset in event.get("inputs", []) + event.get("outputs", []):
        name = f"file:{dataset['name']}"
        yield name
        facets = dataset.get("facets", {})
        fields = [one["name"] for one in facets.get("schema", {}).get("fields", [])]
        yield from {
            f"{name}.{field}" for field in [*fields, *facets.get("columnLineage", {}).get("fields", [])]
        }


def asked(home: Path, name: str) -> Dependencies | None:
    try:
        return Lineage.open(home).dependencies(name, up=None, down=None)
    except NotFoundError:
        return None


@pytest.mark.parametrize("path", sorted(GRAPHS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_graph_is_what_a_reader_of_the_job_draws(home: Path, path: Path) -> None:
    graph = yaml.safe_load(path.read_text())
    other_names = {
        other: f"file:{name}" for name, others in graph.get("names", {}).items() for other in others
    }
    events = next(one for one in (path.parent, EVENTS) if (one / f"{path.stem}.jsonl").exists())
    bodies = (events / f"{path.stem}.jsonl").read_bytes().splitlines()
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, body, "tests") for body in bodies)
    names = {name for body in bodies for name in named_in(json.loads(body))} | other_names.keys()
    found = {name: asked(home, name) for name in names}
    edges = {
        (shown(edge.source), str(edge.kind), shown(edge.target))
        for one in found.values()
        if one is not None
        for edge in (*one.upstream.edges, *one.downstream.edges)
    }
    drawn = {tuple(other_names.get(part, part) for part in edge) for edge in edges if edge[1] in KINDS}
    assert drawn == drawn_by_hand(graph)
    jobs = {f"waybill-test/{job}" for job in graph["jobs"]}
    assert jobs == {name for name, one in found.items() if one is not None and one.node.kind == "job"}
    for other, name in other_names.items():
        renamed, known = found[other], found[name]
        assert renamed is not None
        assert known is not None
        assert [one.distance for one in renamed.upstream.nodes] == [
            one.distance for one in known.upstream.nodes
        ]
