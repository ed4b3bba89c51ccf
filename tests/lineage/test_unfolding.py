"""Drawings that unfold: what is opened is drawn, and what is not is counted."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from keeping import answers_of, keep, ran

from waybill.lineage.drawing import (
    OPENED_AT_ONCE,
    Arrow,
    Box,
    Fold,
    Link,
    Look,
    fold,
    outline,
    places_of_lines,
    write_svg,
)
from waybill.lineage.graph import Graph, Node, NodeKind, OfAround, OfBeyond, OfDependencies, shown
from waybill.transport import Journal, Kind, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from waybill.lineage.answers import HomeAnswers

SVG = "{http://www.w3.org/2000/svg}"
WIDE = 200


@pytest.fixture
def answers(home: Path) -> Iterator[HomeAnswers]:
    leaves = [f"{at:03}" for at in range(WIDE)]
    told = [
        ran("etl/load", ["lake/raw"], ["lake/orders"]),
        ran("etl/sum", ["lake/orders", "lake/rates"], ["lake/report"]),
        *(ran(f"etl/job{leaf}", ["lake/orders"], [f"lake/leaf{leaf}"]) for leaf in leaves),
    ]
    keep(home, told)
    with answers_of(home) as opened:
        yield opened


def number(kind: NodeKind, namespace: str, name: str) -> str:
    return f"{Node(kind, namespace, name).number:x}"


def around(answers: HomeAnswers, name: str, opened: tuple[str, ...] = (), with_states: int = 0) -> Graph:
    """What is drawn around a node."""
    return answers.answer(OfAround(answers.answer(OfDependencies(name)), opened, with_states))


def test_a_graph_opens_at_one_hop_and_each_opened_node_shows_its_neighbours(answers: HomeAnswers) -> None:
    graph = around(answers, "report")
    assert {shown(node) for node in graph.distances} == {"lake/report", "etl/sum"}
    job = number(NodeKind.JOB, "etl", "sum")
    graph = around(answers, "report", (job,), 1)
    assert {shown(node): away for node, away in graph.distances.items()} == {
        "lake/report": 0,
        "etl/sum": 1,
        "lake/orders": 2,
        "lake/rates": 2,
    }
    assert {shown(node): state for node, state in graph.states.items()} == {"etl/sum": "COMPLETE"}
    not_found = number(NodeKind.DATASET, "lake", "raw")
    assert around(answers, "report", (job, not_found), 1) == graph, "it hangs on nothing drawn"
    rim = tuple(node for node in graph.distances if shown(node) in {"lake/orders", "lake/rates"})
    beyond = answers.answer(OfBeyond(rim, tuple(graph.distances)))
    assert {shown(node): count for node, count in beyond.items()} == {"lake/orders": WIDE + 1}


def test_the_first_hop_is_what_the_question_for_dependencies_finds(answers: HomeAnswers) -> None:
    for name in ("report", "etl/sum", "lake/orders"):
        found, graph = answers.answer(OfDependencies(name)), around(answers, name)
        near = {one.node for one in (*found.upstream.nodes, *found.downstream.nodes)}
        assert graph.distances.keys() == {found.node} | near
        assert set(graph.edges) == {*found.upstream.edges, *found.downstream.edges}


def test_a_group_that_is_opened_shows_its_first_nodes_each_time(answers: HomeAnswers) -> None:
    graph = around(answers, "lake/orders")
    opened: list[str] = []
    for left in (WIDE + 1, WIDE + 1 - OPENED_AT_ONCE, WIDE + 1 - 2 * OPENED_AT_ONCE):
        folded = fold(graph, opened=opened)
        (rest,) = [group for group in folded.groups if group.node is None]
        assert len(rest.nodes) == left
        assert sum(len(group.nodes) for group in folded.groups) == len(graph.distances)
        opened.append(rest.key)
    assert len({group.key for group in folded.groups}) == len(folded.groups)


def test_a_name_with_its_type_is_that_of_a_node_of_this_type(answers: HomeAnswers) -> None:
    assert answers.answer(OfDependencies("dataset:orders")).node.kind is NodeKind.DATASET
    assert answers.answer(OfDependencies("job:etl/sum")).node.kind is NodeKind.JOB
    with pytest.raises(NotFoundError, match="no dataset, column or job has the name 'job:orders'"):
        answers.answer(OfDependencies("job:orders"))


def did(at: int) -> str:
    return f"01a1fd6a-9e75-7d78-870f-{at:012}"


@pytest.fixture
def split(home: Path) -> Iterator[HomeAnswers]:
    """A file that came from another one, was split into 120, of which the first was split into two."""
    parents = {1: 0, 2: 1} | dict.fromkeys(range(10, 130), 1) | {200: 10, 201: 10}
    records = [
        {
            "did": did(at),
            "parentDid": did(parents[at]) if at in parents else None,
            "systemName": "edge",
            "dataSource": "in",
            "filename": f"{at:03}.csv",
            "finalState": "SPLIT" if at in {0, 1, 10} else "COMPLETE",
            "dataSink": None if at in {0, 1, 10} else "lake",
            "created": 1_769_860_800_000 + at,
            "completed": 1_769_860_800_001 + at,
        }
        for at in (0, *parents)
    ]
    told = [{key: value for key, value in one.items() if value is not None} for one in records]
    with closing(Journal(home)) as journal:
        journal.append(Kind.PROVENANCE, json.dumps(told).encode())
    with answers_of(home) as opened:
        yield opened


def test_a_journey_of_one_hop_unfolds(split: HomeAnswers) -> None:
    near = split.trace(did(0), up=True, down=True, depth=1)
    assert set(near.files) == {did(0), did(1)}
    assert {parent: len(some) for parent, some in split.children([did(1), did(2), did(10)]).items()} == {
        did(1): 121,
        did(10): 2,
    }
    wide = split.trace(did(0), up=True, down=True, depth=1, is_opened=lambda one: one == did(1))
    assert len(wide.files) == 123
    far = split.trace(did(0), up=True, down=True, depth=1, is_opened=lambda one: one in {did(1), did(10)})
    assert set(far.files) == set(split.trace(did(0), up=True, down=True, depth=None).files)
    alone = split.trace(did(0), up=True, down=True, depth=1, is_opened=lambda one: one == did(10))
    assert set(alone.files) == set(near.files), "it is not in the journey"


def test_children_that_are_shown_are_not_folded(split: HomeAnswers) -> None:
    journey = split.trace(did(1), up=True, down=True, depth=1)
    for shown_count, boxes in ((0, 3), (50, 53), (121, 123), (500, 123)):
        places, arrows = places_of_lines(outline(journey, shown={did(1): shown_count}))
        folds = [one for one in places if isinstance(one, Fold)]
        assert len(places) == boxes
        assert len(arrows) == boxes - 1
        assert sum(one.files for one in folds) == 121 - min(shown_count, 121)


def test_a_box_with_links_has_them_as_links_with_words_and_no_style() -> None:
    links = {0: Link('/file?did=a"b&c', "the <name>"), 1: Link("?unfold=1", "unfold it", is_within=True)}
    boxes = [Box(["<name>", "+ 2 more"], Look(), ("#fff", "#000"), links=links), Box(["b"], Look(), ("", ""))]
    drawn = write_svg(boxes, [Arrow(0, 1)], title="What <is> there")
    assert "style" not in drawn
    root = ET.fromstring(drawn)  # noqa: S314 - our own text
    assert root.get("role") == "group"
    assert root.findtext(f"{SVG}title") == "What <is> there"
    page, within = root.iter(f"{SVG}a")
    assert dict(page.attrib) == {"href": '/file?did=a"b&c', "aria-label": "the <name>"}
    assert [one.tag for one in page] == [f"{SVG}rect", f"{SVG}text"]
    assert dict(within.attrib) == {"href": "?unfold=1", "aria-label": "unfold it", "class": "within"}
    assert ET.fromstring(write_svg(boxes[1:], [], title="b")).get("role") == "img"  # noqa: S314 - as above
