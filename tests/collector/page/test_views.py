"""The views as people see them: what they show, to whom, and that they do what they say."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from browsing import take_picture, visit
from page_sample import ODD_NAMES
from read_pages import HTML, main_of

import waybill.collector.page

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from served import Collector

VIEWS: Final = {
    "home": "/",
    "find": "/find?final_state=COMPLETE&final_state=ERROR",
    "open": "/open",
    "search": "/search?q=build",
    "health": "/health",
}
PICTURED: Final = {"home", "find", "open", "search", "health"}
STATIC: Final = Path(waybill.collector.page.__file__).parent / "static"


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_keeps_people_from_using_a_view(browser: Browser, looked_at: Collector, name: str) -> None:
    opened = visit(browser, looked_at.url + VIEWS[name])
    if name in PICTURED:
        take_picture(opened.page, name)
    opened.check_use()
    opened.close()


def test_names_are_shown_as_they_are_and_do_nothing(browser: Browser, looked_at: Collector) -> None:
    opened = visit(browser, f"{looked_at.url}/find?to=1769857300000&limit=100")
    page = opened.page
    page.on("dialog", lambda _: pytest.fail("a name ran as a script"))
    shown = page.locator("td.file").all_inner_texts()
    assert page.locator("main img").count() == 0
    opened.close()
    for name in ODD_NAMES:
        if len(name) < 120:
            assert name in shown
    assert any(text.startswith("long-xxx") and "…" in text for text in shown)


def test_the_form_finds_and_counts_and_bars_narrow(browser: Browser, looked_at: Collector) -> None:
    opened = visit(browser, f"{looked_at.url}/find")
    page = opened.page
    page.get_by_role("textbox", name="Data source").fill("web-shop")
    page.get_by_role("button", name="Find").click()
    assert "data_source=web-shop" in page.url
    assert page.locator("#counts b").inner_text() == "30 records"
    page.locator("#counts").get_by_role("link", name="ERROR").click()
    assert page.locator("#counts b").inner_text() == "6 records"
    page.get_by_role("link", name="Without Data source web-shop").click()
    assert "web-shop" not in page.url
    assert page.locator("#counts b").inner_text() == "18 records"
    bar = page.locator("svg.chart a").last
    label = bar.get_attribute("aria-label") or ""
    bar.click()
    page.wait_for_url("**from=*")
    assert label.partition(": ")[2].startswith(page.locator("#counts b").inner_text())
    opened.close()


def test_pages_go_on_where_the_last_one_ended(looked_at: Collector) -> None:
    path, seen = "/find", list[str]()
    while path:
        links = main_of(looked_at, path).links
        seen += [to for to in links.values() if to.startswith("/file?")]
        path = links.get("Next page", "")
    assert len(seen) == len(set(seen)) == 90 + len(ODD_NAMES) + 1


def test_what_takes_long_to_count_is_counted_after_the_hits(browser: Browser, looked_at: Collector) -> None:
    address = f"{looked_at.url}/find?annotation=customer%3Dacme"
    opened = visit(browser, address)
    opened.page.locator("#counts b").wait_for()
    assert opened.page.locator("#counts b").inner_text() == "45 records"
    assert opened.page.locator("#over-time svg").count() == 1
    opened.close()
    without = visit(browser, address, has_script=False)
    without.page.get_by_role("link", name="Count them").click()
    assert without.page.locator("#counts b").inner_text() == "45 records"
    without.close()


def test_everything_works_without_script(browser: Browser, looked_at: Collector) -> None:
    opened = visit(browser, looked_at.url, has_script=False)
    page = opened.page
    page.get_by_role("combobox", name="Did not get to").fill("warehouse")
    page.get_by_role("button", name="Find").click()
    assert "missing_sink=warehouse" in page.url
    assert page.locator("td.file").count() == 30
    page.get_by_role("searchbox").fill("build")
    page.get_by_role("button", name="Search").click()
    assert (
        page.get_by_role("link", name="build_orders").get_attribute("href") == "/job?node=shop%2Fbuild_orders"
    )
    opened.close()


def test_a_search_goes_straight_to_the_only_file_of_a_name(looked_at: Collector) -> None:
    found = looked_at.get("/search?q=orders-007.csv", HTML)
    assert found.status == 303
    assert found.headers["location"] == "/file?did=01a1fd6a-9e75-7d78-870f-000000000007"


def test_the_keyboard_is_enough(browser: Browser, looked_at: Collector) -> None:
    opened = visit(browser, f"{looked_at.url}/find")
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    page.keyboard.type("orders-00*")
    page.keyboard.press("Enter")
    page.wait_for_url("**filename=orders-00**")
    assert page.locator("td.file").count() == 10
    page.goto(f"{looked_at.url}/find")
    page.locator("svg.chart a").last.focus()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    opened.close()
    assert outline == "solid"


@pytest.mark.parametrize("view", ["/find", "/open", "/search?q=build", "/slis?tier=critical", "/health", "/"])
def test_json_is_what_the_page_shows(looked_at: Collector, view: str) -> None:
    path, _, query = view.partition("?")
    with_suffix = looked_at.get(f"{path.rstrip('/') or '/home'}.json?{query}")
    assert (with_suffix.status, with_suffix.headers["content-type"]) == (200, "application/json")
    assert looked_at.get(view).json.keys() == with_suffix.json.keys()
    assert looked_at.get(view, HTML).headers["content-type"] == "text/html; charset=utf-8"


def test_cells_that_a_spreadsheet_would_run_begin_with_an_apostrophe(looked_at: Collector) -> None:
    rows = list(csv.DictReader(io.StringIO(looked_at.get("/find.csv?to=1769857300000").body.decode())))
    assert f"'{ODD_NAMES[4]}" in [row["filename"] for row in rows]
    assert not [cell for row in rows for cell in row.values() if cell and cell[0] in "=+-@\t\r"]


def test_a_drawing_stands_alone(looked_at: Collector) -> None:
    drawn = looked_at.get("/find.svg")
    assert drawn.headers["content-type"] == "image/svg+xml"
    assert b"<style>" in drawn.body
    assert b"<a " not in drawn.body
    assert b"style" not in looked_at.get("/find", HTML).body.partition(b"<svg")[2].partition(b"</svg>")[0]


@pytest.mark.parametrize("path", ["/", "/find", "/find.json", "/find.csv", "/find.svg", "/find?limit=x"])
def test_every_form_has_its_policy(looked_at: Collector, path: str) -> None:
    headers = looked_at.get(path, HTML).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "unsafe-eval" not in headers["content-security-policy"]
    assert "script-src 'unsafe" not in headers["content-security-policy"]


def test_files_of_the_page_are_kept_for_long(looked_at: Collector) -> None:
    page = looked_at.get("/", HTML).body.decode()
    address = page.partition('href="/static/waybill.')[2].partition('"')[0]
    kept = looked_at.get(f"/static/waybill.{address}")
    assert kept.headers["cache-control"].endswith("immutable")
    assert looked_at.get("/static/waybill.000000000000.css").status == 404
    assert looked_at.get("/static/../view.py").status == 404


def test_the_script_is_htmx_as_it_was_published() -> None:
    scripts = list(STATIC.glob("*.js"))
    digest = hashlib.sha256((STATIC / "htmx.min.js").read_bytes()).hexdigest()
    assert digest == "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"  # htmx.org 2.0.11
    assert sum(script.stat().st_size for script in scripts) <= 60_000
