"""The view of the service levels: what it draws of their history."""

from __future__ import annotations

import contextlib
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest
from browsing import take_picture, visit
from events import event
from read_pages import HTML, main_of
from served import without_runner
from typer.testing import CliRunner

from waybill.cli.app import app
from waybill.exporter.keys import Keys
from waybill.exporter.query import TailReader
from waybill.lineage.answers import HomeAnswers
from waybill.lineage.levels import EVERY_MS, measure, read_plan
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser
    from served import Collector

TOLD: Final[tuple[tuple[tuple[str, list[str], list[str]], ...], ...]] = (
    (("a", ["lake/raw"], []),),
    (("b", ["lake/rates"], []), ("c", [], ["lake/rates"])),
    (("d", [], ["lake/raw"]),),
    (("e", ["lake/orders"], []),),
)
"""Between two moments: jobs, what they read and what they write. Of 1, 2, 2 and 3 datasets that are read, the
origin of 0, 1, 2 and 2 is known."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector of a home whose levels were recorded four times, the last time by the command."""
    home = tmp_path_factory.mktemp("levels") / "home"
    settings = Settings.load({"home": home}, env={})
    lately = datetime.now(UTC).isoformat()
    began_ms = time.time_ns() // 1_000_000 - (len(TOLD) - 1) * EVERY_MS
    for at, jobs in enumerate(TOLD):
        with contextlib.closing(Journal(home)) as journal:
            for job, inputs, outputs in jobs:
                body = event(f"run-{job}", at=lately, job=f"etl/{job}", inputs=inputs, outputs=outputs)
                journal.append(Kind.OPENLINEAGE, body, "")
            if at < len(TOLD) - 1:
                answers = HomeAnswers(journal, settings, TailReader(journal), Keys())
                now_ms = began_ms + at * EVERY_MS
                measure(answers, journal, read_plan(settings), history=journal, now_ms=now_ms)
    done = CliRunner().invoke(app, ["slis", "--record", "--home", str(home)])
    assert done.exit_code == 1, "an objective is missed"
    with without_runner(home) as collector:
        yield collector


def test_a_line_shows_which_part_was_good_at_each_moment(browser: Browser, told: Collector) -> None:
    opened = visit(browser, f"{told.url}/slis?tier=important")
    page = opened.page
    row = page.get_by_role("row", name="Missing provenance")
    (drawn,) = row.get_by_role("img").all()
    assert drawn.get_attribute("aria-label") == "4 moments, good: 0.0% to 100.0%, now 66.7%"
    # The worst of them is at the bottom, the best at the top, and all are as far apart.
    assert drawn.locator("polyline").get_attribute("points") == "0.0,26.0 46.7,14.0 93.3,2.0 140.0,10.0"
    line = drawn.locator("polyline").element_handle()
    drawn_in = page.evaluate(
        "one => { const {x, y, width, height} = one.getBBox(); return [x, y, width, height] }", line
    )
    assert drawn_in == [0, 2, 140, 24]
    size = drawn.bounding_box()
    assert size is not None
    assert (size["width"], size["height"]) == (140, 28), "a unit is a pixel"
    look = page.evaluate("one => [getComputedStyle(one).fill, getComputedStyle(one).stroke]", line)
    assert look == ["none", "rgb(29, 86, 201)"], "it is a line, and is seen"
    cells = row.get_by_role("cell").all_inner_texts()
    # 3 of 8 are bad, and 1 % of 8 may be: 37.5 times as fast as allowed, for 20 minutes of the 30 days.
    assert cells[2:7] == ["missed", "33.33%", "at most 1.00%", "98 %", "37.50, 37.50, 37.50"]
    assert page.get_by_role("row", name="Coverage").get_by_role("img").count() == 0, "nothing is known of it"
    opened.close()


def test_what_is_missed_comes_first_and_then_what_is_met(told: Collector) -> None:
    page = told.get("/slis", HTML).body.decode()
    shown = re.findall('<td data-name="Met"><span[^>]*>([^<]*)<', page)
    order = ["missed", "met", "no objective", "unknown"]
    assert set(shown) == set(order)
    assert shown == sorted(shown, key=order.index)
    assert f"1 objective missed {shown.count('met')} met" in main_of(told, "/slis").text
    assert len(shown) == len(told.get("/slis.json").json["levels"])


def test_nothing_keeps_people_from_seeing_it(browser: Browser, told: Collector) -> None:
    opened = visit(browser, f"{told.url}/slis")
    take_picture(opened.page, "slis")
    assert opened.page.locator("svg.spark").count() > 1
    opened.check_use()
    opened.close()
