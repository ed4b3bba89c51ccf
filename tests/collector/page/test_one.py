"""The views of one file, dataset, job or column: what they show, and that their drawings unfold."""

from __future__ import annotations

import contextlib
import json
import re
from html import unescape
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import msgspec
import pytest
from browsing import PHONE, take_picture, visit
from events import event
from inside import Inside
from page_sample import ODD_NAMES
from playwright.sync_api import expect
from read_pages import HTML, Main, main_of
from served import Collector, record, without_runner
from typer.testing import CliRunner

from waybill.cli.app import app
from waybill.cli.records import as_plain
from waybill.exporter.verification import Explanation
from waybill.lineage import Dependencies, Impact, ToldJourney
from waybill.transport import Settings, flush

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

BEGAN_MS: Final = 1_769_860_800_000
WIDE: Final = 1_200
ALLOWED: Final = "customer,errorCause"
JOINED: Final = "01a1fd6a-9e75-7d78-3333-000000000000"
JOINED_OF_MANY: Final = "01a1fd6a-9e75-7d78-3333-111111111111"
OPEN: Final = "01a1fd6a-9e75-7d78-4444-000000000000"
ODD_NODES: Final = [name.replace("\0", "") for name in ODD_NAMES[:3]] + ["long-" + "x" * 4_000]


def did(at: int) -> str:
    return f"01a1fd6a-9e75-7d78-870f-{at:012}"


def file(at: int, parent: str | None, **more: object) -> dict[str, object]:
    whole = record(did=did(at), filename=f"part-{at:05}.csv", created=BEGAN_MS + at, completed=BEGAN_MS + at)
    return {key: value for key, value in (whole | {"parentDid": parent} | more).items() if value is not None}


def files() -> list[dict[str, object]]:
    """A file that was split into two, of which one was split into many; and files with odd names."""
    split: dict[str, object] = {"finalState": "SPLIT", "dataSink": None}
    failed: dict[str, object] = {
        "finalState": "ERROR",
        "dataSink": None,
        "completed": BEGAN_MS + 60_000,
        "annotations": {"errorCause": "the <b>header</b> is missing", "customer": "acme"},
    }
    few = [file(0, None, **split), file(1, did(0), **split), file(2, did(0), **failed)]
    odd = [
        file(90_000 + at, did(2), did=f"odd:{name}"[:4_090], filename=name)
        for at, name in enumerate(ODD_NAMES)
    ]
    return [*few, *(file(10 + at, did(1)) for at in range(WIDE)), *odd]


def ran(job: str, minute: int, kind: str = "COMPLETE", **more: Any) -> bytes:  # noqa: ANN401 - as `members`
    run = f"{job[:40]} at {minute}"
    sql = {"sql": {"query": "INSERT INTO orders\nSELECT id, amount AS total FROM raw"}}
    facets = {"ownership": {"owners": [{"name": "team:sales"}]}} | (sql if job == "load" else {})
    named = {"namespace": "etl", "name": job, "facets": facets}
    return event(run, kind, f"2026-01-31T12:{minute:02}:00Z", job=named, **more)


def orders(kind: str, version: str) -> dict[str, object]:
    derived = {"total": {"inputFields": [{"namespace": "lake", "name": "raw", "field": "amount"}]}}
    facets = {
        "schema": {"fields": [{"name": "id", "type": "int"}, {"name": "total", "type": kind}]},
        "version": {"datasetVersion": version},
        "ownership": {"owners": [{"name": "ada"}]},
        "documentation": {"description": "All orders, with their totals."},
        "tags": {"tags": [{"key": "tier", "value": "critical"}]},
        "columnLineage": {"fields": derived},
    }
    return {"namespace": "lake", "name": "orders", "facets": facets}


def told() -> list[bytes]:
    """A job that ran three times while its dataset changed, what reads that, a wide fan, and odd names."""
    raw, rates = "lake/raw", "lake/rates"
    report = {"namespace": "lake", "name": "report", "facets": {"ownership": {"owners": [{"name": "bob"}]}}}
    sent = []
    for minute, took, kind, version in ((0, 4, "int", "1"), (10, 2, "decimal", "2"), (20, 9, "decimal", "3")):
        sent += [
            ran("load", minute, "START", inputs=[raw]),
            ran("load", minute, inputs=[raw], outputs=[orders(kind, version)]).replace(
                f"12:{minute:02}:00Z".encode(), f"12:{minute + took:02}:00Z".encode()
            ),
        ]
    sent.append(ran("sum", 30, "FAIL", inputs=["lake/orders", rates], outputs=[report]))
    sent += [ran(f"fan{at:03}", 40, inputs=[rates]) for at in range(80)]
    for at, name in enumerate(ODD_NODES):
        dataset = {"namespace": "lake", "name": name}
        sent.append(ran(f"job {name}"[:4_000], 50 + at, inputs=[dataset], outputs=[report]))
    joined = [{"run": {"runId": did(at)}, "job": {"namespace": "edge", "name": "in"}} for at in (2, 10, 11)]
    facet = {"did": JOINED, "systemName": "edge", "dataSource": "join", "filename": "all.csv"}
    ended = facet | {"parentDid": did(2), "finalState": "COMPLETE", "dataSink": "lake"}
    facets = {"waybill_deltaFile": ended, "jobDependencies": {"upstream": joined}}
    sent.append(event(JOINED, job="edge/join", facets=facets))
    many = [{"run": {"runId": did(at)}, "job": {"namespace": "edge", "name": "in"}} for at in range(100, 170)]
    ended |= {"did": JOINED_OF_MANY, "parentDid": did(100), "filename": "many.csv"}
    facets = {"waybill_deltaFile": ended, "jobDependencies": {"upstream": many}}
    sent.append(event(JOINED_OF_MANY, job="edge/join", facets=facets))
    begun = {"waybill_deltaFile": facet | {"did": OPEN, "filename": "open.csv", "parentDid": JOINED}}
    sent.append(event(OPEN, "START", job="edge/join", facets=begun))
    return sent


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    home = tmp_path_factory.mktemp("one") / "home"
    given: dict[str, Any] = {"provenance_enabled": True, "provenance_annotations_allowed": ALLOWED}
    with contextlib.closing(Inside(home, **given)) as one:
        assert one.post("/provenance", json.dumps(files()).encode()).status == 202
        for body in told():
            assert one.post("/api/v1/lineage", body).status == 201
        flush(Settings.load({"home": home, "provenance_enabled": True}, env={}))
        yield one


@pytest.fixture(scope="module")
def seen(sample: Inside) -> Iterator[Collector]:
    """A collector of the same home for a browser."""
    options = ("--provenance-enabled", "--provenance-annotations-allowed", ALLOWED)
    with without_runner(sample.home, *options) as collector:
        yield collector


def at(path: str, **params: object) -> str:
    return f"{path}?{urlencode(params)}"


VIEWS: Final = {
    "file": at("/file", did=JOINED, proof="true"),
    "file-of-odd-names": at("/file", did=did(2)),
    "dataset": at("/dataset", node="lake/orders"),
    "job": at("/job", node="etl/load"),
    "column": at("/column", node="lake/orders", column="total"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_keeps_people_from_using_a_view(browser: Browser, seen: Collector, name: str) -> None:
    opened = visit(browser, seen.url + VIEWS[name])
    if name != "file-of-odd-names":
        take_picture(opened.page, name)
    opened.check_use()
    opened.close()


def test_a_drawing_opens_at_one_hop_and_unfolds_by_click_and_key(browser: Browser, seen: Collector) -> None:
    opened = visit(browser, seen.url + at("/file", did=did(0)))
    page = opened.page
    page.evaluate("window.isSame = true")
    boxes = page.locator("#drawing svg g")
    assert boxes.count() == 3, "the file and the two that came from it"
    more = page.locator("#drawing svg a.within", has_text="more").first
    assert more.text_content() == f"+ {WIDE:,} more"
    more.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**unfold=*")
    page.locator("#drawing svg", has_text=f"{WIDE:,} files").wait_for()
    expect(page.locator("#drawing")).to_be_focused()
    assert boxes.count() == 4
    page.locator("#drawing nav").get_by_role("link", name="unfold + show some of them").click()
    page.locator("#drawing svg", has_text=f"{WIDE - 50:,} files").wait_for()
    assert boxes.count() == 54
    page.go_back()
    page.locator("#drawing svg", has_text=f"{WIDE:,} files").wait_for()
    page.locator("#drawing nav").get_by_role("link", name="fold again").click()
    expect(boxes).to_have_count(3)
    assert page.evaluate("window.isSame"), "only the drawing was swapped"
    opened.close()


def test_a_drawing_larger_than_its_frame_shows_first_what_it_is_about(
    browser: Browser, seen: Collector
) -> None:
    opened = visit(browser, seen.url + at("/dataset", node="lake/rates"), viewport=PHONE)
    page = opened.page
    page.locator("#drawing svg a.within").last.click()
    page.wait_for_url("**unfold=*")
    for _ in ("swapped", "loaded"):
        frame = page.locator(".picture")
        page.locator("#drawing svg", has_text="31 jobs in etl").wait_for()
        assert frame.evaluate("one => one.scrollHeight > 2 * one.clientHeight"), "it is large"
        expect(frame.locator("[font-weight]")).to_be_in_viewport(ratio=1)
        page.reload()
    opened.close()


def test_each_box_is_told_in_words_beside_the_drawing(sample: Inside) -> None:
    page = sample.get(at("/job", node="etl/sum"), HTML).body.decode()
    drawn, _, listed = page.partition('id="drawing"')[2].partition("</section>")[0].partition("</svg>")
    assert 'role="group"' in drawn
    assert (
        sorted(re.findall('<a href="([^"]*)"', drawn))
        == sorted(re.findall('<a href="([^"]*)"', listed))
        != []
    )


def test_a_file_of_several_parents_has_them_all(sample: Inside) -> None:
    found = sample.get(at("/file.json", did=JOINED)).json
    assert {one["did"] for one in found["journey"]["files"]} == {did(2), did(10), did(11), JOINED, OPEN}
    assert len(found["drawing"]["arrows"]) == 4


def test_of_many_parents_the_first_are_drawn_and_the_rest_counted(sample: Inside) -> None:
    def drawn(unfold: str) -> tuple[int, str]:
        found = sample.get(at("/file.json", did=JOINED_OF_MANY, unfold=unfold)).json
        assert len(found["journey"]["files"]) == 71
        boxes, arrows = found["drawing"]["boxes"], found["drawing"]["arrows"]
        assert len(arrows) == len(boxes) - 1
        return len(boxes), boxes[-1]["words"][0]

    assert drawn("") == (52, "20 more files that it came from")
    assert drawn("from")[0] == 71


def test_a_record_names_the_file_that_it_came_from(sample: Inside) -> None:
    links = main_of(sample, at("/file", did=did(10))).links
    assert links["part-00001.csv"] == at("/file", did=did(1))


def test_an_open_file_says_so(sample: Inside) -> None:
    page = main_of(sample, at("/file", did=OPEN))
    assert "State open begun" in page.text
    assert "it has not ended" in page.text


def test_an_error_has_its_reason_and_names_do_nothing(sample: Inside) -> None:
    page = main_of(sample, at("/file", did=did(2)))
    assert "ERROR the <b>header</b> is missing" in page.text
    shown = [(at("/file", did=did(2)), "")]
    shown += [(at("/file", did=f"odd:{name}"[:4_090]), name) for name in ODD_NAMES]
    shown += [(at("/dataset", node=f"lake/{name}"), f"lake/{name}") for name in ODD_NODES]
    shown += [(at("/job", node=f"etl/job {name}"[:4_004]), f"etl/job {name}") for name in ODD_NODES]
    for path, name in shown:
        page = main_of(sample, path)
        assert name[:40] in page.text
        assert page.tags.isdisjoint({"img", "script", "b"}), path


def asked(home: object, *words: str) -> Any:  # noqa: ANN401 - any JSON value
    done = CliRunner().invoke(app, [*words, "--json", "--home", str(home)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plain(told: object, kind: Any) -> Any:  # noqa: ANN401 - any JSON value
    """An answer of HTTP with its instants as the commands write them."""
    return as_plain(msgspec.convert(told, kind))


def test_json_is_what_the_commands_say(sample: Inside) -> None:
    home = sample.home
    shown = sample.get(at("/file.json", did=JOINED, proof="true")).json
    assert plain(shown["journey"], ToldJourney) == asked(home, "trace", JOINED, "--depth", "1")
    proof = plain(shown["proof"], Explanation)
    assert {**proof, "is_proven": shown["is_proven"]} == asked(home, "explain", JOINED)
    (entry,) = shown["entries"]
    assert entry == asked(home, "where", entry["receipt"])
    for view, name in (("dataset", "lake/orders"), ("job", "etl/load"), ("column", "lake/orders.total")):
        shown = sample.get(at(f"/{view}.json", node=name)).json
        assert plain(shown["lineage"], Dependencies) == asked(home, "lineage", name, "--columns")
        assert plain(shown["impact"], Impact) == asked(home, "impact", name)
        done = CliRunner().invoke(app, ["impact", name, "--csv", "--home", str(home)])
        assert (
            sample.get(at(f"/{view}.csv", node=name)).body.decode().splitlines() == done.stdout.splitlines()
        )
    assert shown["origins"] == asked(home, "origins", "lake/orders.total")
    assert (
        sample.get(at("/column.json", node="lake/orders", column="total")).json["lineage"] == shown["lineage"]
    )


def test_the_forms_of_a_view(sample: Inside) -> None:
    rows = sample.get(at("/file.csv", did=did(2))).body.decode().splitlines()
    assert rows[0].startswith("did,parent_did,system_name")
    assert len(rows) == 2
    for view in VIEWS.values():
        path, _, query = view.partition("?")
        drawn = sample.get(f"{path}.svg?{query}")
        root = ET.fromstring(drawn.body)  # noqa: S314 - our own text
        assert root.get("role") == "img"
        assert b"<a " not in drawn.body
        page = sample.get(view, HTML).body
        assert b"style=" not in page
        assert b"<style" not in page


def test_a_dataset_has_its_versions_columns_runs_and_whom_a_change_concerns(sample: Inside) -> None:
    page = main_of(sample, VIEWS["dataset"])
    assert "column total : int decimal" in page.text
    assert "All orders, with their totals." in page.text
    assert page.links["lake/raw.amount"] == at("/column", node="lake/raw", column="amount")
    assert page.links["lake/orders.total"] == at("/column", node="lake/orders", column="total")
    assert re.search("A change of it reaches 2 datasets and jobs .* bob ", page.text)
    assert "INSERT INTO orders SELECT" in page.text
    assert "svg" in page.tags


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        (at("/dataset", node="lake/ordres"), 404, "no dataset, column or job has the name"),
        (at("/job", node="lake/orders"), 404, "lake/orders is a dataset, no job"),
        (at("/dataset", node=""), 400, "node is missing"),
        (at("/file", did="nothing"), 404, "no record has the did nothing"),
    ],
)
def test_what_is_not_there_is_a_page_with_the_words_and_status_of_json_and_names_like_it(
    sample: Inside, path: str, status: int, says: str
) -> None:
    assert sample.get(path).status == status
    assert says in sample.get(path).json["detail"]
    page = sample.get(path, HTML)
    assert (page.status, says in page.body.decode()) == (status, True)
    assert page.headers["content-type"].startswith("text/html")
    if "ordres" in path:
        assert Main(page.body.decode()).links["lake/orders"] == at("/dataset", node="lake/orders")


def test_a_file_has_its_events_rows_and_its_way_to_files(sample: Inside) -> None:
    to_proof = main_of(sample, at("/file", did=JOINED)).links["Search the stored events"]
    page = main_of(sample, to_proof.partition("#")[0])
    assert "The rows are what the stored events say." in page.text
    assert "provenance/" in page.text
    assert "layout: done" in page.text
    body = (
        sample.get(to_proof.partition("#")[0], HTML).body.decode().partition("<pre")[2].partition("</pre>")[0]
    )
    event = json.loads(unescape(body.partition(">")[2]))
    assert event["run"]["facets"]["waybill_deltaFile"]["did"] == JOINED


def test_a_run_that_failed_says_that_its_data_did_not_reach_its_output(sample: Inside) -> None:
    page = sample.get(at("/file", did="sum at 30"), HTML).body.decode()
    assert "Its data did not reach <bdi>lake/report</bdi>" in page
    assert "Its data reached" not in page
