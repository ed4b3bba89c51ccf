"""The graph of datasets and jobs in pictures and files: nothing is lost, and what is folded is counted."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import networkx
import pytest
from hypothesis import example, given, settings, strategies as st

from waybill.lineage.drawing import (
    Arrow,
    Box,
    Look,
    TooLargeForMermaidError,
    boxes_of_graph,
    draw,
    fold,
    graphml_of_graph,
    network_of,
    said_of_group,
    write_dot,
    write_mermaid,
    write_svg,
)
from waybill.lineage.drawing.writing import plain, xml_text
from waybill.lineage.graph import Edge, EdgeKind, Graph, Node, NodeKind, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

HOSTILE = 'a"b\\c<d>&#;`|{}[]()\x00\x1b\r\n\u202e%% --> end <script>alert(1)</script> ü 🚀'
SVG = "{http://www.w3.org/2000/svg}"
LONG = "x" * 4_096


def dataset(name: object, namespace: str = "lake") -> Node:
    return Node(NodeKind.DATASET, namespace, str(name))


def job(name: object, namespace: str = "etl") -> Node:
    return Node(NodeKind.JOB, namespace, str(name))


def edge(source: Node, target: Node) -> Edge:
    return Edge(source, EdgeKind.READ if target.kind is NodeKind.JOB else EdgeKind.WRITE, target)


def full_edge(source: Node, target: Node) -> Edge:
    """An edge with all that one can say."""
    return Edge(
        source, EdgeKind.DERIVE, target, job(1), "sql", 0.5, ("DIRECT",), masking=True, run="r", first_ms=1
    )


def around(about: Node, edges: Iterable[Edge], states: dict[Node, str] | None = None) -> Graph:
    """The graph of these edges; distances are those of a breadth-first search along them, either way."""
    told = list(dict.fromkeys(edges))
    distances, frontier = {about: 0}, [about]
    for near in frontier:
        for one in told:
            for this, other in ((one.source, one.target), (one.target, one.source)):
                if this == near and other not in distances:
                    distances[other] = distances[near] + 1
                    frontier.append(other)
    return Graph(about, distances, tuple(told), states or {})


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Up to 60 nodes of a few namespaces and types, joined at random, with circles and fans."""
    kinds = st.sampled_from([dataset, job])
    spaces = st.sampled_from(["lake", "pond", HOSTILE])
    nodes = [draw(kinds)("n0", HOSTILE)]
    edges = []
    for at in range(1, draw(st.integers(1, 60))):
        nodes.append(draw(kinds)(f"n{at}", draw(spaces)))
        near = nodes[draw(st.just(0) | st.integers(0, at - 1))]
        pair = (near, nodes[at]) if draw(st.booleans()) else (nodes[at], near)
        edges.append(Edge(pair[0], draw(st.sampled_from([EdgeKind.READ, EdgeKind.WRITE])), pair[1]))
    some = st.sampled_from(nodes)
    kind = st.sampled_from(EdgeKind)
    edges += draw(st.lists(st.builds(Edge, some, kind, some), max_size=20))
    return around(draw(some), {(one.source, one.kind, one.target): one for one in edges}.values())


SMALL = {"_NEAR_FOLDED_FROM": 6, "_GROUPS_MAX": 15, "_CHAINS_FROM": 8, "_CHAINED_FROM": 3}
"""Bounds that a graph of sixty nodes meets."""


@given(graph=graphs(), folded_from=st.none() | st.integers(2, 5), for_list=st.booleans())
def test_every_node_and_edge_is_drawn_once_or_counted_in_what_is_folded(
    graph: Graph, folded_from: int | None, *, for_list: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(f"waybill.lineage.drawing.folding.{name}", value)
        folded = fold(graph, folded_from=folded_from, for_list=for_list)
        assert folded == fold(graph, folded_from=folded_from, for_list=for_list)
    nodes = [node for group in folded.groups for node in group.nodes]
    assert len(nodes) == len(set(nodes))
    assert len(nodes) + sum(group.beyond for group in folded.groups) == len(graph.distances)
    assert sum(folded.links.values()) + sum(group.inside for group in folded.groups) == len(graph.edges)
    assert folded.groups[0].nodes[0] == graph.about
    places = {group.node: at for at, group in enumerate(folded.groups) if group.node is not None}
    alone = Counter(
        (places[one.source], one.kind, places[one.target])
        for one in graph.edges
        if one.source in places and one.target in places
    )
    assert {link: folded.links[link] for link in alone} == alone
    if folded_from is None:
        assert places.keys() == graph.distances.keys()
    for group in folded.groups:
        kinds = Counter(node.kind for node in group.nodes)
        assert all(f"{count} {kind}" in said_of_group(group) for kind, count in kinds.items())


@given(graphs())
def test_each_picture_has_the_boxes_and_arrows(graph: Graph) -> None:
    boxes, arrows = boxes_of_graph(graph)
    ends = [(one.source, one.target) for one in arrows]
    drawn = write_mermaid(boxes, arrows)
    assert drawn.startswith("flowchart LR\n")
    label = r'"<div>[^"\n]*</div>"'
    places = re.findall(
        rf"^  n(\d+)(?:\[\({label}\)\]|\(\[{label}\]\)|\[\[{label}\]\])$", drawn, re.MULTILINE
    )
    assert [int(place) for place in places] == [*range(len(boxes))]
    lines = re.findall(r'^  n(\d+) -(?:-|\.-)>(?:\|"[\w, ]+"\|)? n(\d+)$', drawn, re.MULTILINE)
    assert [(int(source), int(target)) for source, target in lines] == ends
    assert len(drawn.splitlines()) == 1 + 2 * len(boxes) + len(arrows)
    lines = re.findall(r"^  n(\d+) -> n(\d+)(?: \[.*\])?;$", write_dot(boxes, arrows), re.MULTILINE)
    assert [(int(source), int(target)) for source, target in lines] == ends


@given(graphs())
def test_a_drawing_has_each_box_with_its_words_and_each_arrow(graph: Graph) -> None:
    boxes, arrows = boxes_of_graph(graph)
    drawn = ET.fromstring(write_svg(boxes, arrows))  # noqa: S314 - our own text
    assert {one.tag for one in drawn.iter()} <= {
        f"{SVG}{tag}" for tag in ("svg", "rect", "path", "g", "text")
    }
    groups = [[*one.iter(f"{SVG}text")] for one in drawn.iter(f"{SVG}g")]
    told = [[text.text for text in some] for some in groups]
    assert told == [[plain(words) for words in box.words] for box in boxes]
    places = [(text.get("x"), text.get("y")) for some in groups for text in some]
    assert len(set(places)) == len(places)
    for one, (first, *_) in zip(drawn.iter(f"{SVG}g"), groups, strict=True):
        x, y = float(first.get("x") or 0), float(first.get("y") or 0)
        for rect in one.findall(f"{SVG}rect"):
            left, top, width, height = (float(rect.get(key) or 0) for key in ("x", "y", "width", "height"))
            assert left < x < left + width
            assert top < y < top + height
    lines = [one for one in drawn.findall(f"{SVG}path") if one.get("fill") == "none"]
    assert len(lines) == len(arrows)
    assert [text.text for text in drawn.findall(f"{SVG}text")] == [one.words for one in arrows if one.words]


def test_a_drawing_goes_from_left_to_right_and_has_the_sources_of_a_node_near_to_it() -> None:
    far = [edge(dataset("a"), job("b")), edge(job("b"), dataset("c")), edge(dataset("c"), job("d"))]
    near = [edge(dataset("z"), job("d")), edge(job("d"), dataset("e")), edge(dataset("a"), job("d"))]
    drawn = ET.fromstring(write_svg(*boxes_of_graph(around(job("d"), far + near))))  # noqa: S314 - our own text
    lines = [one.get("d") or "" for one in drawn.findall(f"{SVG}path") if one.get("fill") == "none"]
    spans = [[float(x) for x in re.findall(r"(-?[\d.]+),", line)] for line in lines]
    assert all(xs == sorted(xs) for xs in spans)
    lefts = {text.text: float(text.get("x") or 0) for text in drawn.iter(f"{SVG}text")}
    assert lefts["lake/z"] == lefts["lake/c"] > lefts["etl/b"] > lefts["lake/a"]


@settings(max_examples=10)
@given(graphs())
@example(around(dataset(1), [full_edge(dataset(0), dataset(1))]))
@example(around(job(HOSTILE), [edge(dataset(LONG, HOSTILE), job(HOSTILE))], {job(HOSTILE): "ERROR"}))
def test_networkx_reads_the_whole_graph_from_graphml(graph: Graph) -> None:
    text = graphml_of_graph(graph)
    ids = re.findall(r'<key id="(\w+)"', text)
    assert len(ids) == len(set(ids)), "an id is taken once, by data of nodes or by data of edges"
    read = networkx.parse_graphml(text, force_multigraph=True)
    nodes = dict(zip(read.nodes, graph.distances, strict=True))
    for name, node in nodes.items():
        told = read.nodes[name]
        assert (told["labelV"], told["name"], told["namespace"]) == (
            node.kind,
            xml_text(node.name),
            xml_text(node.namespace),
        )
        assert (told["distance"], told.get("state")) == (graph.distances[node], graph.states.get(node))
        assert told["label"] == xml_text(shown(node))
    edges = [(nodes[of], data["labelE"], nodes[to]) for of, to, data in read.edges(data=True)]
    assert sorted(edges) == sorted((one.source, one.kind, one.target) for one in graph.edges)
    assert len({key for _, _, key in read.edges(keys=True)}) == len(edges)


@given(graphs())
def test_a_graph_of_networkx_has_the_nodes_and_edges(graph: Graph) -> None:
    network = network_of(graph)
    assert {node: data["distance"] for node, data in network.nodes(data=True)} == graph.distances
    edges = sorted((one.source, one.kind, one.target) for one in graph.edges)
    assert sorted((of, kind, to) for of, to, kind in network.edges(keys=True)) == edges
    assert network.graph["about"] == graph.about


def test_graphviz_reads_the_graph() -> None:
    program = shutil.which("dot")
    if program is None:
        pytest.skip("Graphviz is not on the PATH")
    fan = [edge(job("a"), dataset(at)) for at in range(60)]
    graph = around(job("a"), [edge(dataset(HOSTILE, HOSTILE), job("a")), *fan])
    text = write_dot(*boxes_of_graph(graph))
    done = subprocess.run([program, "-Tplain"], input=text, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()].count("node") == 3
    assert [line.split()[0] for line in done.stdout.splitlines()].count("edge") == 2


def net(width: int) -> Graph:
    """A job that reads datasets, each of which many others read and write, too: few fans, many arrows."""
    about, others = job("a"), [job(at) for at in range(width)]
    datasets = [dataset(at) for at in range(width)]
    reads = [edge(some, about) for some in datasets]
    return around(about, [*reads, *(edge(some, far) for some in datasets for far in others)])


def test_a_flowchart_is_folded_to_what_mermaid_draws() -> None:
    def boxes_of(folded_from: int | None) -> tuple[list[Box], list[Arrow]]:
        asked.append(folded_from)
        return boxes_of_graph(net(26), folded_from)

    asked: list[int | None] = []
    flowchart = draw("mermaid", boxes_of)
    assert 0 < flowchart.count("-->") <= 500
    assert len(flowchart) <= 50_000
    draw("svg", boxes_of)
    draw("dot", boxes_of)
    assert asked == [13, 13, 13]

    asked.clear()
    with pytest.raises(TooLargeForMermaidError, match="and this has 702 and"):
        draw("mermaid", boxes_of, unfold=True)
    assert draw("dot", boxes_of, unfold=True).count(" -> ") == 26 * 27


@pytest.mark.parametrize(("of", "letters"), [(500, ""), (501, "501 and"), (20, "20 and 5[0-9],")])
def test_what_mermaid_does_not_draw_is_no_flowchart(of: int, letters: str) -> None:
    box = Box(["x" * (2_500 if of == 20 else 1)], Look(), ("#fff", "#000"))
    drawn = [box] * 20, [Arrow(0, 1)] * of
    if not letters:
        assert write_mermaid(*drawn).count("-->") == of
        return
    with pytest.raises(TooLargeForMermaidError, match=letters):
        write_mermaid(*drawn)


def test_no_name_leaves_its_label() -> None:
    boxes, arrows = boxes_of_graph(around(job(HOSTILE), [edge(dataset(HOSTILE, HOSTILE), job(HOSTILE))]))
    labels = re.findall(r'"<div>(.*)</div>"', write_mermaid(boxes, arrows))
    assert len(labels) == 2
    assert not any(set(label) & set('"<>&`|{}[]%\n') for label in labels)
    quoted = re.findall(r'label="((?:[^"\\]|\\.)*)", fillcolor', write_dot(boxes, arrows))
    assert len(quoted) == 2
    assert all(label.isprintable() and "&amp;#" in label for label in quoted)


def test_a_long_name_is_drawn_by_its_ends_and_is_whole_in_a_file() -> None:
    graph = around(dataset(f"begin{LONG}end"), [edge(job("a"), dataset(f"begin{LONG}end"))])
    (label,) = (box.words[0] for box in boxes_of_graph(graph)[0] if box.is_about)
    assert re.fullmatch("lake/beginx+…x+end", label)
    assert len(label) < 100
    assert f"lake/begin{LONG}end" in graphml_of_graph(graph)


def said(graph: Graph) -> list[str]:
    return [said_of_group(group) for group in fold(graph).groups if group.node is None]


def test_a_wide_fan_is_one_box_for_a_namespace_with_what_is_beyond() -> None:
    fan = [edge(job("mid"), dataset(at, "s3://lake")) for at in range(38)]
    beyond = [edge(dataset(at, "s3://lake"), job(f"next{at % 3}")) for at in range(38)]
    few = [edge(job("mid"), dataset(at, "hive")) for at in range(2)]
    graph = around(dataset("in"), [edge(dataset("in"), job("mid")), *fan, *few, *beyond])
    assert said(graph) == ["38 datasets in s3://lake, and 3 nodes beyond, with 38 edges among them"]
    assert len(fold(graph).groups) == 2 + 2 + 1
    assert said(around(job("mid"), fan)) == [], "of the node asked for, one sees more"


def test_many_namespaces_are_a_few_boxes() -> None:
    fan = [edge(job("a"), dataset(at, f"s3://{at:03}")) for at in range(100)]
    wide = [edge(job("a"), dataset(at, "s3://big")) for at in range(30)]
    graph = around(dataset("in"), [edge(dataset("in"), job("a")), *fan, *wide])
    assert said(graph) == ["30 datasets in s3://big", "90 datasets in 90 namespaces"]
    assert len(fold(graph).groups) == 2 + 12


def test_a_hub_of_ten_thousand_and_a_chain_of_as_many_are_few_boxes() -> None:
    fan = [edge(dataset("hub"), job(at)) for at in range(10_000)]
    hub = Graph(dataset("hub"), {dataset("hub"): 0} | {job(at): 1 for at in range(10_000)}, tuple(fan))
    assert said(hub) == ["10,000 jobs in etl"]
    row = [dataset(at) if at % 2 else job(at) for at in range(10_000)]
    chain = Graph(
        row[5_000],
        {row[5_000]: 0} | {node: abs(at - 5_000) for at, node in enumerate(row) if at != 5_000},
        tuple(edge(*pair) for pair in itertools.pairwise(row)),
    )
    boxes, arrows = boxes_of_graph(chain)
    assert (len(boxes), len(arrows)) == (5, 4)
    assert sum(group.beyond + len(group.nodes) for group in fold(chain).groups) == 10_000


def test_a_tree_as_wide_as_can_be_without_a_fold_has_some_hundreds_of_boxes() -> None:
    edges, layer = [], [job("")]
    for _ in range(4):
        below = [
            (one, Node(NodeKind.DATASET, "lake", f"{one.name}.{at}")) for one in layer for at in range(12)
        ]
        edges += [Edge(near, EdgeKind.WRITE, far) for near, far in below]
        layer = [far for _, far in below]
    nodes = dict.fromkeys([job(""), *(one.target for one in edges)], 1)
    graph = Graph(job(""), nodes, tuple(edges))
    assert len(nodes) > 20_000
    assert len(boxes_of_graph(graph)[0]) < 600
    assert len(boxes_of_graph(graph, folded_from=None)[0]) == len(nodes)
