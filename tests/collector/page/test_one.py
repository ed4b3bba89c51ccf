"""The views of one file, dataset, job or column: what they show, and that their drawings unfold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from xml.etree import ElementTree as ET

import msgspec
import pytest
from browsing import PHONE, take_picture, visit
from events import event
from page_sample import ODD_NAMES
from playwright.sync_api import expect
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
WIDE: Final = 10_000
ALLOWED: Final = "customer,errorCause"
HTML: Final = {"Accept": "text/html"}
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
    """A file that was split into two, of which one was split into 10,000; and files with odd names."""
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
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    home = tmp_path_factory.mktemp("one") / "home"
    with without_runner(home, "--provenance-enabled", "--provenance-annotations-allowed", ALLOWED) as one:
        sent = files()
        for at in range(0, len(sent), 2_000):
            assert one.post("/provenance", json.dumps(sent[at : at + 2_000]).encode()).status == 202
        for body in told():
            assert one.post("/api/v1/lineage", body).status == 201
        flush(Settings.load({"home": home, "provenance_enabled": True}, env={}))
        yield one


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
def test_nothing_keeps_people_from_using_a_view(browser: Browser, sample: Collector, name: str) -> None:
    opened = visit(browser, sample.url + VIEWS[name])
    if name != "file-of-odd-names":
        take_picture(opened.page, name)
    opened.check_use()
    opened.close()


@pytest.mark.parametrize("has_script", [True, False])
def test_a_drawing_opens_at_one_hop_and_unfolds_by_click(
    browser: Browser, sample: Collector, *, has_script: bool
) -> None:
    opened = visit(browser, sample.url + at("/file", did=did(0)), has_script=has_script)
    page = opened.page
    if has_script:
        page.evaluate("window.isSame = true")
    boxes = page.locator("#drawing svg g")
    assert boxes.count() == 3, "the file and the two that came from it"
    more = page.locator("#drawing svg a.within", has_text="more").first
    assert more.text_content() == f"+ {WIDE:,} more"
    more.click()
    page.wait_for_url("**unfold=*")
    page.locator("#drawing svg", has_text=f"{WIDE:,} files").wait_for()
    assert boxes.count() == 4
    page.locator("#drawing nav").get_by_role("link", name="unfold + show some of them").click()
    page.locator("#drawing svg", has_text=f"{WIDE - 50:,} files").wait_for()
    assert boxes.count() == 54
    page.go_back()
    page.locator("#drawing svg", has_text=f"{WIDE:,} files").wait_for()
    page.locator("#drawing nav").get_by_role("link", name="fold again").click()
    expect(boxes).to_have_count(3)
    if has_script:
        assert page.evaluate("window.isSame"), "only the drawing was swapped"
    opened.close()


def test_the_keyboard_unfolds_and_what_is_focused_is_seen(browser: Browser, sample: Collector) -> None:
    opened = visit(browser, sample.url + at("/dataset", node="lake/report"))
    page = opened.page
    link = page.locator("#drawing svg a.within").first
    link.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_url("**unfold=*")
    page.locator("#drawing svg a.within", has_text="fold again").wait_for()
    expect(page.locator("#drawing")).to_be_focused()
    opened.close()


def test_a_drawing_larger_than_its_frame_shows_first_what_it_is_about(
    browser: Browser, sample: Collector
) -> None:
    opened = visit(browser, sample.url + at("/dataset", node="lake/rates"), viewport=PHONE)
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


def test_each_box_is_told_in_words_beside_the_drawing(browser: Browser, sample: Collector) -> None:
    opened = visit(browser, sample.url + at("/job", node="etl/sum"))
    drawn = [one.get_attribute("href") for one in opened.page.locator("#drawing svg a").all()]
    listed = [one.get_attribute("href") for one in opened.page.locator("#drawing nav a").all()]
    assert sorted(map(str, drawn)) == sorted(map(str, listed)) != []
    assert opened.page.locator("#drawing svg").get_attribute("role") == "group"
    opened.close()


def test_a_file_of_several_parents_has_them_all(sample: Collector) -> None:
    found = sample.get(at("/file.json", did=JOINED)).json
    assert {one["did"] for one in found["journey"]["files"]} == {did(2), did(10), did(11), JOINED, OPEN}
    assert len(found["drawing"]["arrows"]) == 4


def test_of_many_parents_the_first_are_drawn_and_the_rest_counted(sample: Collector) -> None:
    def drawn(unfold: str) -> tuple[int, str]:
        found = sample.get(at("/file.json", did=JOINED_OF_MANY, unfold=unfold)).json
        assert len(found["journey"]["files"]) == 71
        boxes, arrows = found["drawing"]["boxes"], found["drawing"]["arrows"]
        assert len(arrows) == len(boxes) - 1
        return len(boxes), boxes[-1]["words"][0]

    assert drawn("") == (52, "20 more files that it came from")
    assert drawn("from")[0] == 71


def test_a_record_names_the_file_that_it_came_from(browser: Browser, sample: Collector) -> None:
    opened = visit(browser, sample.url + at("/file", did=did(10)))
    page = opened.page
    page.locator("dl.facts").get_by_role("link", name="part-00001.csv").click()
    page.wait_for_url(f"**did={did(1)}")
    assert page.locator("h1").inner_text() == "part-00001.csv"
    opened.close()


def test_an_open_file_says_so(browser: Browser, sample: Collector) -> None:
    opened = visit(browser, sample.url + at("/file", did=OPEN))
    page = opened.page
    assert "open begun" in page.locator("dl.facts").first.inner_text()
    assert "it has not ended" in page.locator("main").inner_text()
    assert page.locator(".times li").count() == 1
    opened.close()


def test_an_error_has_its_reason_and_names_do_nothing(browser: Browser, sample: Collector) -> None:
    opened = visit(browser, sample.url + at("/file", did=did(2)))
    page = opened.page
    assert page.locator(".note.wrong").inner_text() == "ERROR the <b>header</b> is missing"
    assert page.locator("main img, main script, main b").count() == 0
    assert {name for name in ODD_NAMES if len(name) < 90} <= {
        text.replace(" ", "\u202e", 1) if text.startswith(" gnp") else text
        for text in page.locator("#drawing nav bdi").all_inner_texts()
    } | {ODD_NAMES[2]}
    page.on("dialog", lambda _: pytest.fail("a name ran as a script"))
    for name in ODD_NAMES:
        page.goto(sample.url + at("/file", did=f"odd:{name}"[:4_090]))
        assert page.locator("h1").inner_text().startswith(name[:50])
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    for name in ODD_NODES:
        for view, node in (("/dataset", f"lake/{name}"), ("/job", f"etl/job {name}"[:4_004])):
            page.goto(sample.url + at(view, node=node))
            assert page.locator("h1").inner_text().startswith(node[:40])
            assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert page.locator("main img, main script").count() == 0
    opened.close()


def asked(home: object, *words: str) -> Any:  # noqa: ANN401 - any JSON value
    done = CliRunner().invoke(app, [*words, "--json", "--home", str(home)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def plain(told: object, kind: Any) -> Any:  # noqa: ANN401 - any JSON value
    """An answer of HTTP with its instants as the commands write them."""
    return as_plain(msgspec.convert(told, kind))


def test_json_is_what_the_commands_say(sample: Collector) -> None:
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


def test_the_forms_of_a_view(sample: Collector) -> None:
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


def test_a_dataset_has_its_versions_columns_runs_and_whom_a_change_concerns(
    browser: Browser, sample: Collector
) -> None:
    opened = visit(browser, sample.url + VIEWS["dataset"])
    page = opened.page
    text = page.locator("main").inner_text()
    assert "column total: int decimal" in text
    assert "All orders, with their totals." in text
    assert page.get_by_role("link", name="lake/raw.amount").count() == 1
    assert "A change of it reaches 2 datasets and jobs" in text
    assert page.locator("svg.chart g").count() == 3
    assert page.locator("pre").inner_text().startswith("INSERT INTO orders")
    assert "bob" in page.locator("section[aria-labelledby=impact]").inner_text()
    page.get_by_role("link", name="lake/orders.total").click()
    assert page.url.endswith("/column?node=lake%2Forders&column=total")
    opened.close()


def test_a_wide_fan_is_counted_and_opened_piece_by_piece(sample: Collector) -> None:
    def groups(unfold: str) -> tuple[int, list[dict[str, Any]]]:
        boxes = sample.get(at("/dataset.json", node="lake/rates", unfold=unfold)).json["drawing"]["boxes"]
        return len(boxes), [box for box in boxes if "jobs in" in box["words"][0]]

    count, (group,) = groups("")
    assert (count, group["words"][0]) == (2, "81 jobs in etl")
    key = next(iter(group["links"].values()))["href"].partition("unfold=")[2]
    count, (group,) = groups(key)
    assert (count, group["words"][0]) == (52, "31 jobs in etl")


@pytest.mark.parametrize(
    ("view", "name", "status", "says"),
    [
        ("/dataset", "lake/ordres", 404, "no dataset, column or job has the name"),
        ("/job", "lake/orders", 404, "lake/orders is a dataset, no job"),
        ("/dataset", "", 400, "node is missing"),
    ],
)
def test_what_is_not_there_is_said_with_names_like_it(
    browser: Browser, sample: Collector, view: str, name: str, status: int, says: str
) -> None:
    path = at(view, node=name)
    assert sample.get(path).status == status
    assert says in sample.get(path).json["detail"]
    page = sample.get(path, HTML)
    assert (page.status, says in page.body.decode()) == (status, True)
    if name == "lake/ordres":
        opened = visit(browser, sample.url + path)
        opened.page.get_by_role("link", name="lake/orders").click()
        assert opened.page.locator("h1").inner_text() == "lake/orders"
        opened.page.close()


def test_an_unknown_file_is_said(sample: Collector) -> None:
    reply = sample.get(at("/file", did="nothing"), HTML)
    assert (reply.status, "no record has the did nothing" in reply.body.decode()) == (404, True)


def test_a_file_has_its_events_rows_and_its_way_to_files(browser: Browser, sample: Collector) -> None:
    opened = visit(browser, sample.url + at("/file", did=JOINED))
    page = opened.page
    page.get_by_role("link", name="Search the stored events").click()
    text = page.locator("#proof").inner_text()
    assert "The rows are what the stored events say." in text
    assert "provenance/" in text
    page.locator("#proof summary").first.click()
    body = json.loads(page.locator("#proof pre").first.inner_text())
    assert body["run"]["facets"]["waybill_deltaFile"]["did"] == JOINED
    assert "layout: done" in text
    opened.close()


def test_a_run_that_failed_says_that_its_data_did_not_reach_its_output(sample: Collector) -> None:
    page = sample.get(at("/file", did="sum at 30"), HTML).body.decode()
    assert "Its data did not reach <bdi>lake/report</bdi>" in page
    assert "Its data reached" not in page
