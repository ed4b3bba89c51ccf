from __future__ import annotations

import functools
import itertools
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import example, given, settings, strategies as st
from layouts import START_MS, record

from waybill.exporter.query import Conditions
from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.arrow import to_table
from waybill.lineage import Journey, OpenFile, trace
from waybill.lineage.drawing import (
    Fold,
    Line,
    boxes_of_journey,
    draw,
    graphml_of_journey as graphml,
    outline,
    said_of,
    write_dot,
    write_mermaid,
    write_svg,
)
from waybill.lineage.drawing.writing import xml_text
from waybill.lineage.file_table import FileTable

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.exporter import Query

GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = 'a"b\\c<d>&#;`|{}[]()\x00\x1b\n\u202e%% --> end ü 🚀'


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
    for fold in folds:
        children = [journey.files[did] for did in journey.files[fold.did].children]
        hidden = [file for file in children if file.did not in shown]
        assert len(hidden) == fold.files
        assert sum(fold.ends.values()) == sum(len(file.records) for file in hidden)


@given(records=forests(), folded_from=st.none() | st.integers(1, 5))
def test_each_picture_has_the_edges_of_the_lines(
    records: list[ProvenanceRecord], folded_from: int | None
) -> None:
    journey = journey_of(records, "f0")
    lines = list(outline(journey, folded_from=folded_from))
    edges = sum(line.parent is not None for line in lines)
    boxes, arrows = boxes_of_journey(journey, folded_from=folded_from)
    flowchart = write_mermaid(boxes, arrows).splitlines()
    assert flowchart[0] == "flowchart LR"
    assert sum(bool(re.fullmatch(r"  n\d+ --> n\d+", line)) for line in flowchart) == edges
    assert sum(bool(re.fullmatch(r'  n\d+\["<div>[^"]*</div>"\]', line)) for line in flowchart) == len(lines)
    drawn = ET.fromstring(write_svg(boxes, arrows))  # noqa: S314 - our own text
    assert len([one for one in drawn.findall(f"{SVG}path") if one.get("fill") == "none"]) == edges
    assert len(drawn.findall(f"{SVG}g")) == len(lines)
    assert len([text.text for text in drawn.iter(f"{SVG}text") if text.get("font-weight")]) == 1
    shapes = drawn.findall(f"{SVG}g/{SVG}rect[last()]")
    layers = sorted({(float(one.get("x", "")), float(one.get("width", ""))) for one in shapes})
    for (left, width), (right, _) in itertools.pairwise(layers):
        assert left + width < right, "the boxes of a layer are as wide, so no arrow passes behind one"


@given(records=forests())
def test_graphml_has_every_file_with_its_records(records: list[ProvenanceRecord]) -> None:
    journey = journey_of(records, "f0")
    graph = ET.fromstring(graphml(journey)).find(f"{GRAPHML}graph")  # noqa: S314 - our own text
    assert graph is not None
    nodes = graph.findall(f"{GRAPHML}node")
    dids = {node.get("id"): node.findtext(f"{GRAPHML}data[@key='did']") for node in nodes}
    assert set(dids.values()) == journey.files.keys()
    told = [
        one
        for node in nodes
        for data in node
        if data.get("key") == "records"
        for one in msgspec.json.decode(data.text or "", type=list[ProvenanceRecord])
    ]
    assert sorted(map(repr, told)) == sorted(map(repr, records))
    edges = [(dids[edge.get("source")], dids[edge.get("target")]) for edge in graph.findall(f"{GRAPHML}edge")]
    assert sorted(edges, key=str) == sorted(journey.edges())


@settings(max_examples=10)
@given(records=forests())
@example(records=[record("a\r\n<&\"'", filename=f"{HOSTILE[:-8]}\r\n\t%")])
@example(records=[record("row 7"), record("tab\x01", parent_did="row 7"), record("tab\\u0001")])
def test_networkx_reads_what_graphml_writes(records: list[ProvenanceRecord]) -> None:
    networkx = pytest.importorskip("networkx")
    journey = journey_of(records, records[0].did)
    graph = networkx.parse_graphml(graphml(journey))
    files = dict(zip(graph.nodes, journey.files.values(), strict=True))
    assert all(re.fullmatch(r"n\d+", name) for name in files)
    assert sorted((files[of].did, files[to].did) for of, to in graph.edges) == sorted(journey.edges())
    for name, file in files.items():
        assert graph.nodes[name]["did"] == xml_text(file.did)
        assert graph.nodes[name]["filename"] == xml_text(file.filename or "")
        told = msgspec.json.decode(graph.nodes[name]["records"], type=tuple[ProvenanceRecord, ...])
        assert told == file.records


def test_graphviz_reads_what_dot_writes() -> None:
    program = shutil.which("dot")
    if program is None:
        pytest.skip("Graphviz is not on the PATH")
    records = [record("a", filename=HOSTILE), record("b", parent_did="a", data_source=HOSTILE)]
    text = write_dot(*boxes_of_journey(journey_of(records, "b")))
    done = subprocess.run([program, "-Tplain"], input=text, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()].count("edge") == 1
    assert [line.split()[0] for line in done.stdout.splitlines()].count("node") == 2


def test_no_name_leaves_its_label() -> None:
    records = [record("a", filename=HOSTILE, data_source=HOSTILE, data_sink=HOSTILE)]
    drawn = boxes_of_journey(journey_of(records, "a"))
    [label] = re.findall(r'n0\["<div>(.*)</div>"\]', write_mermaid(*drawn))
    assert not set(label.replace("<br>", "")) & set('"<>&`|{}[]%\n')
    [node] = [line for line in write_dot(*drawn).splitlines() if line.startswith("  n0")]
    [quoted] = re.findall(r'label="((?:[^"\\]|\\.)*)", fillcolor', node)
    assert quoted.isprintable()
    assert "&amp;#" in quoted
    assert "<d>" not in write_svg(*drawn)


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
    drawn = boxes_of_journey(journey)
    assert write_mermaid(*drawn).count("<div>") == len(above) + 2
    assert write_dot(*drawn).count("label=") == len(above) + 2
    assert write_svg(*drawn).count("<g>") == len(above) + 2
    assert graphml(journey).count("<node") == len(above) + 2


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
    assert msgspec.json.encode(begun).decode() in graphml(journey)


def test_the_file_asked_about_is_never_folded() -> None:
    journey = journey_of([record("a"), *(record(f"c{at}", parent_did="a") for at in range(100))], "c50")
    lines: list[Line] = list(outline(journey))
    assert [line.of.did for line in lines] == ["a", "c50"]


def test_a_chain_of_thousands_is_drawn() -> None:
    chain = [record(f"f{at}", parent_did=f"f{at - 1}" if at else None) for at in range(1_500)]
    journey = journey_of(chain, "f0")
    assert len(list(outline(journey))) == 1_500


def test_thousands_of_arrows_over_thousands_of_layers_are_drawn() -> None:
    records = [record(f"f{at}", parent_did=f"f{at - 1}" if at else None) for at in range(1_500)]
    records += [record(f"f{at}", parent_did="f0", at_ms=1) for at in range(2, 1_500)]
    began_s = time.process_time()
    drawn = write_svg(*boxes_of_journey(journey_of(records, "f0"), folded_from=None))
    assert drawn.count("<g>") == 1_500
    assert drawn.count('fill="none"') == 2 * 1_500 - 3
    assert time.process_time() - began_s < 10, "by ways through all layers it takes minutes"
