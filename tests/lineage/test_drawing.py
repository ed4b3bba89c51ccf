"""Journeys and the graph in pictures and files: nothing is lost, and what is folded is counted."""

from __future__ import annotations

import functools
import itertools
import re
import shutil
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
import networkx
import pytest
from hypothesis import example, given, settings, strategies as st
from layouts import START_MS, record

from waybill.exporter.query import Conditions
from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import to_table
from waybill.lineage import Journey, OpenFile, trace
from waybill.lineage.drawing import (
    Arrow,
    Box,
    Fold,
    Look,
    TooLargeForMermaidError,
    boxes_of_graph,
    boxes_of_journey,
    draw,
    fold,
    graphml_of_graph,
    graphml_of_journey,
    network_of,
    outline,
    said_of,
    said_of_group,
    write_dot,
    write_mermaid,
    write_svg,
)
from waybill.lineage.drawing.writing import plain, xml_text
from waybill.lineage.file_table import FileTable
from waybill.lineage.graph import Edge, EdgeKind, Graph, Node, NodeKind, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from waybill.exporter import Query

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


def journey_of(records: list[ProvenanceRecord], did: str) -> Journey:
    table = to_table(records)

    def ask(query: Query, columns: Sequence[str]) -> list[pa.Table]:
        return [Conditions(query).filter(table).select(columns)]

    return trace(ask, did)


@st.composite
def forests(draw: st.DrawFn) -> list[ProvenanceRecord]:
    """The records of a tree of up to 40 files, some of which have two paths."""
    records = [record("f0", filename=HOSTILE)]
    for at in range(1, draw(st.integers(1, 40))):
        parent = draw(st.integers(0, at - 1) | st.just(0))
        state = draw(st.sampled_from(FinalState))
        records += [
            record(f"f{at}", parent_did=f"f{parent}", at_ms=at, final_state=state, data_sink=sink)
            for sink in draw(st.sampled_from([(None,), ("lake",), ("lake", "report")]))
        ]
    return records


DRAWINGS = st.one_of(
    graphs().map(boxes_of_graph), forests().map(lambda records: boxes_of_journey(journey_of(records, "f0")))
)
Drawing = tuple[list[Box], list[Arrow]]


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


@given(DRAWINGS)
def test_each_picture_has_the_boxes_and_arrows(drawing: Drawing) -> None:
    boxes, arrows = drawing
    ends = [(one.source, one.target) for one in arrows]
    drawn = write_mermaid(boxes, arrows)
    assert drawn.startswith("flowchart LR\n")
    label = r'"<div>[^"\n]*</div>"'
    places = re.findall(
        rf"^  n(\d+)(?:\[{label}\]|\[\({label}\)\]|\(\[{label}\]\)|\[\[{label}\]\])$", drawn, re.MULTILINE
    )
    assert [int(place) for place in places] == [*range(len(boxes))]
    lines = re.findall(r'^  n(\d+) -(?:-|\.-)>(?:\|"[\w, ]+"\|)? n(\d+)$', drawn, re.MULTILINE)
    assert [(int(source), int(target)) for source, target in lines] == ends
    assert len(drawn.splitlines()) <= 1 + 2 * len(boxes) + len(arrows)
    lines = re.findall(r"^  n(\d+) -> n(\d+)(?: \[.*\])?;$", write_dot(boxes, arrows), re.MULTILINE)
    assert [(int(source), int(target)) for source, target in lines] == ends


@given(DRAWINGS)
def test_a_drawing_has_each_box_with_its_words_and_each_arrow(drawing: Drawing) -> None:
    boxes, arrows = drawing
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
    shapes = drawn.findall(f"{SVG}g/{SVG}rect[last()]")
    layers = sorted({(float(one.get("x", "")), float(one.get("width", ""))) for one in shapes})
    for (left, width), (right, _) in itertools.pairwise(layers):
        assert left + width < right, "the boxes of a layer are as wide, so no arrow passes behind one"
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


def test_graphviz_reads_what_dot_writes() -> None:
    program = shutil.which("dot")
    if program is None:
        pytest.skip("Graphviz is not on the PATH")
    fan = [edge(job("a"), dataset(at)) for at in range(60)]
    graph = around(job("a"), [edge(dataset(HOSTILE, HOSTILE), job("a")), *fan])
    journey = journey_of(
        [record("a", filename=HOSTILE), record("b", parent_did="a", data_source=HOSTILE)], "b"
    )
    for boxes, arrows in (boxes_of_graph(graph), boxes_of_journey(journey)):
        text = write_dot(boxes, arrows)
        done = subprocess.run([program, "-Tplain"], input=text, check=False, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        kinds = [line.split()[0] for line in done.stdout.splitlines()]
        assert (kinds.count("node"), kinds.count("edge")) == (len(boxes), len(arrows))


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
    graph = around(job(HOSTILE), [edge(dataset(HOSTILE, HOSTILE), job(HOSTILE))])
    journey = journey_of([record("a", filename=HOSTILE, data_source=HOSTILE, data_sink=HOSTILE)], "a")
    for boxes, arrows in (boxes_of_graph(graph), boxes_of_journey(journey)):
        labels = re.findall(r'"<div>(.*)</div>"', write_mermaid(boxes, arrows))
        assert len(labels) == len(boxes)
        assert not any(set(label.replace("<br>", "")) & set('"<>&`|{}[]%\n') for label in labels)
        quoted = re.findall(r'label="((?:[^"\\]|\\.)*)", fillcolor', write_dot(boxes, arrows))
        assert len(quoted) == len(boxes)
        assert all(label.isprintable() and "&amp;#" in label for label in quoted)
        assert "<d>" not in write_svg(boxes, arrows)


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


@given(records=forests(), folded_from=st.none() | st.integers(1, 5), data=st.data())
def test_every_file_is_in_one_line_or_counted_in_one_fold(
    records: list[ProvenanceRecord], folded_from: int | None, data: st.DataObject
) -> None:
    dids = list(dict.fromkeys(one.did for one in records))
    journey = journey_of(records, data.draw(st.sampled_from(dids)))
    lines = list(outline(journey, folded_from=folded_from))
    shown = [line.of.did for line in lines if not isinstance(line.of, Fold)]
    folds = [line.of for line in lines if isinstance(line.of, Fold)]
    assert len(shown) == len(set(shown))
    assert len(shown) + sum(fold.files + fold.descendants for fold in folds) == len(journey.files)
    assert {journey.did, *(file.did for file in journey.ancestors())} <= set(shown)
    assert folds == [] or folded_from is not None
    boxes, arrows = boxes_of_journey(journey, folded_from=folded_from)
    assert (len(boxes), len(arrows)) == (len(lines), sum(line.parent is not None for line in lines))
    for some in folds:
        children = [journey.files[did] for did in journey.files[some.did].children]
        hidden = [file for file in children if file.did not in shown]
        assert len(hidden) == some.files
        assert sum(some.ends.values()) == sum(len(file.records) for file in hidden)


@settings(max_examples=10)
@given(records=forests())
@example(records=[record("a\r\n<&\"'", filename=f"{HOSTILE[:-8]}\r\n\t%")])
@example(records=[record("row 7"), record("tab\x01", parent_did="row 7"), record("tab\\u0001")])
def test_networkx_reads_what_graphml_writes(records: list[ProvenanceRecord]) -> None:
    journey = journey_of(records, records[0].did)
    graph = networkx.parse_graphml(graphml_of_journey(journey))
    files = dict(zip(graph.nodes, journey.files.values(), strict=True))
    assert all(re.fullmatch(r"n\d+", name) for name in files)
    assert sorted((files[of].did, files[to].did) for of, to in graph.edges) == sorted(journey.edges())
    for name, file in files.items():
        assert graph.nodes[name]["did"] == xml_text(file.did)
        assert graph.nodes[name]["filename"] == xml_text(file.filename or "")
        told = msgspec.json.decode(graph.nodes[name]["records"], type=tuple[ProvenanceRecord, ...])
        assert told == file.records


def circle(*dids: str) -> list[ProvenanceRecord]:
    """The records of files each of which names the one before, and the first the last."""
    return [record(did, parent_did=dids[at - 1], at_ms=at) for at, did in enumerate(dids)]


@pytest.mark.parametrize("above", [("app",), ("ping", "pong"), ("a", "b", "c")])
def test_a_circle_of_ancestors_is_drawn_with_all_its_files(above: tuple[str, ...]) -> None:
    records = [*circle(*above), record("step", parent_did=above[-1]), record("sub", parent_did="step")]
    journey = journey_of(records, "sub")
    assert {one.did for one in journey.told().files} == {*above, "step", "sub"}
    lines = list(outline(journey))
    assert [line.of.did for line in lines if line.is_repeat] == [above[-1]]
    assert {line.of.did for line in lines} == {*above, "step", "sub"}
    boxes, _ = boxes_of_journey(journey)
    assert len(boxes) == graphml_of_journey(journey).count("<node") == len(above) + 2


def test_mermaid_shows_names_as_they_are() -> None:
    """In versions 11.0 to 11.12 only the content of an element of HTML is no Markdown."""
    names = {"1. orders.csv": "1. orders.csv", "__init__.py": "__init__.py", "*a*": "#42;a#42;"}
    names |= {"fa:fa-car": "fa:<wbr>fa-car", "$$x": "#36;<wbr>#36;x", "a\nb": "a b"}
    for name, label in names.items():
        text = write_mermaid(*boxes_of_journey(journey_of([record("a", filename=name)], "a")))
        assert f'  n0["<div>{label}<br>COMPLETE' in text


def test_a_wide_split_is_one_line_that_says_how_its_files_ended() -> None:
    kept = [record(f"c{at}", parent_did="a", data_sink="lake") for at in range(309)]
    failed = [
        record(f"e{at}", parent_did="a", data_sink=None, final_state=FinalState.ERROR) for at in range(3)
    ]
    below = record("below", parent_did="c7", data_sink="lake")
    journey = journey_of([record("a"), *kept, *failed, below], "a")
    [_, folded] = outline(journey)
    assert isinstance(folded.of, Fold)
    assert said_of(folded.of) == ("312 files: 309 COMPLETE > lake, 3 ERROR, and 1 that came from them")
    assert len(list(outline(journey, folded_from=None))) == 314


def test_each_picture_shows_that_a_file_has_not_ended() -> None:
    begun = OpenFile(
        did="late",
        parent_did="a",
        system_name="edge",
        data_source="sftp",
        filename="late.csv",
        annotations={},
        transform="unpack",
        began_ms=START_MS,
        received_ms=START_MS,
        last_ms=START_MS + 1,
    )
    records = [record("a"), *(record(f"c{at}", parent_did="a") for at in range(20))]
    files = FileTable(to_table(records), ["late"], [("a", "late")], [begun])
    journey = Journey(did="a", files=files)
    [_, folded] = outline(journey)
    assert isinstance(folded.of, Fold)
    assert said_of(folded.of) == "21 files: 20 COMPLETE > out, 1 not ended"
    for form in ("mermaid", "dot", "svg"):
        told = draw(form, functools.partial(boxes_of_journey, journey), unfold=True)
        assert "sftp: begun 2026-01-01 00:00:00 UTC, not ended, last began unpack" in told
    assert msgspec.json.encode(begun).decode() in graphml_of_journey(journey)


def test_thousands_of_arrows_over_thousands_of_layers_are_drawn() -> None:
    records = [record(f"f{at}", parent_did=f"f{at - 1}" if at else None) for at in range(1_500)]
    records += [record(f"f{at}", parent_did="f0", at_ms=1) for at in range(2, 1_500)]
    began_s = time.process_time()
    drawn = write_svg(*boxes_of_journey(journey_of(records, "f0"), folded_from=None))
    assert drawn.count("<g>") == 1_500
    assert drawn.count('fill="none"') == 2 * 1_500 - 3
    assert time.process_time() - began_s < 10, "by ways through all layers it takes minutes"
