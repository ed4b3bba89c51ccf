"""Each view over a million records: what it says, and that nothing keeps people from using it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
from browsing import visit
from large_home import (
    APART_MS,
    BEGAN_MS,
    CUSTOMERS,
    HOUR_MS,
    RECORDS,
    SOURCES,
    STATES,
    SYSTEMS,
    did,
    filename,
    fill,
)
from playwright.sync_api import expect
from served import without_runner

from waybill.lineage.levels import TIERS, Sli
from waybill.lineage.levels.measuring import OF_TIERS

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page, Response

ALL: Final = RECORDS + 1
"""With the record of the job's run."""
ONE: Final = 123_456
WEIGHT_MAX_BYTES: Final = 150_000
COUNTED_WITHIN_MS: Final = 60_000
"""Counting by an annotation reads every file."""


def counts(total: int, *, errors: int | None = None) -> Callable[[Page], None]:
    """Checks the number of records that are found and, if given, how many of them are errors."""

    def check(page: Page) -> None:
        words = f"{total:,} record{'' if total == 1 else 's'}"
        expect(page.locator("#counts b")).to_have_text(words, timeout=COUNTED_WITHIN_MS)
        if errors is not None:
            expect(page.locator("#counts li", has_text="ERROR").locator("span")).to_have_text(f"{errors:,}")
        bars = page.locator("svg.chart title").all_text_contents()
        assert sum(int(bar.split(": ")[1].split()[0].replace(",", "")) for bar in bars) == total

    return check


def says(*texts: str) -> Callable[[Page], None]:
    """Checks that each text is in the page."""

    def check(page: Page) -> None:
        for text in texts:
            expect(page.locator("main")).to_contain_text(text)

    return check


class Looked(NamedTuple):
    """A view, and what it has to show."""

    path: str
    check: Callable[[Page], None]


def start(page: Page) -> None:
    assert page.locator(".card .figure").all_inner_texts() == [f"{ALL:,}", "0", "1"]
    for state in ("ERROR", "FILTERED", "CANCELLED"):
        shown = page.locator(".names li", has_text=state).locator("> span")
        expect(shown).to_have_text(f"{RECORDS // len(STATES):,}")
    expect(page.locator(".names li", has_text="source-3").locator("> span")).to_have_text(
        f"{RECORDS // SOURCES:,}"
    )


def newest(page: Page) -> None:
    counts(ALL, errors=RECORDS // len(STATES))(page)
    expect(page.locator("td.file").first).to_have_text(filename(RECORDS - 1))


def one_file(page: Page) -> None:
    expect(page.locator("h1")).to_have_text(filename(ONE))
    says(
        did(ONE),
        "COMPLETE",
        f"source-{ONE % SOURCES}",
        f"edge-{ONE % SYSTEMS}",
        CUSTOMERS[ONE % len(CUSTOMERS)],
    )(page)


def levels(page: Page) -> None:
    row = page.get_by_role("row", name="Completeness important")
    expect(row.locator("td[data-name=Value]")).to_have_text("0.00%")
    rows = len(OF_TIERS) * len(TIERS) + len(Sli) - len(OF_TIERS)
    expect(page.locator("tbody tr")).to_have_count(rows)


def health(page: Page) -> None:
    says("All 11 checks are good")(page)
    behind = page.locator("td[data-name='Behind by']").all_inner_texts()
    assert behind == ["0 entries"] * 3, "of the index, the keys and the layout"


HOUR: Final = {"from": BEGAN_MS + 10 * HOUR_MS, "to": BEGAN_MS + 11 * HOUR_MS - 1}
IN_HOUR: Final = sum(HOUR["from"] <= BEGAN_MS + at * APART_MS <= HOUR["to"] for at in range(RECORDS))
VIEWS: Final = {
    "start": Looked("/", start),
    "find, all": Looked("/find", newest),
    "find, state and source": Looked(
        "/find?final_state=ERROR&data_source=source-0", counts(RECORDS // len(STATES))
    ),
    "find, one hour": Looked(f"/find?from={HOUR['from']}&to={HOUR['to']}", counts(IN_HOUR)),
    "find, filename": Looked(f"/find?filename={filename(ONE)}", counts(1)),
    "find, annotation": Looked(
        f"/find?annotation=customer%3D{CUSTOMERS[0]}", counts(len(range(0, RECORDS, len(CUSTOMERS))))
    ),
    "open": Looked("/open", says("1 file or run")),
    "search, a filename": Looked(f"/search?q={filename(ONE)}", one_file),
    "search, words": Looked("/search?q=lake", says("2 datasets and jobs have all words")),
    "file": Looked(f"/file?did={did(ONE)}", one_file),
    "dataset": Looked(
        "/dataset?node=lake/orders", says("lake/orders", "A change of it reaches 1 dataset or job")
    ),
    "job": Looked("/job?node=etl/load", says("etl/load", "1 run as a table")),
    "column": Looked("/column?node=lake/orders&column=total", says("lake/orders.total")),
    "service levels": Looked("/slis", levels),
    "health": Looked("/health", health),
}


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_each_view_shows_the_numbers_of_a_million_records(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    fill(home)
    options = ("--provenance-enabled", "--no-archive-enabled", "--provenance-annotations-allowed", "customer")
    with without_runner(home, *options) as collector:
        for name, (path, check) in VIEWS.items():
            look(browser, collector.url, name, path, check)


def look(browser: Browser, url: str, name: str, path: str, check: Callable[[Page], None]) -> None:
    """Look at a view, and at what the browser loads for it."""
    opened = visit(browser, "about:blank")
    page = opened.page
    answers: list[Response] = []
    failed: list[str] = []
    page.set_default_timeout(COUNTED_WITHIN_MS)

    def hear(answer: Response) -> None:
        answers.append(answer)

    page.on("response", hear)
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.goto(url + path)
    check(page)
    loaded = [one for one in answers if one.status not in range(300, 400)]
    assert failed == [], name
    assert {one.status for one in loaded} == {200}, name
    weight_bytes = sum(len(one.body()) for one in loaded)
    assert weight_bytes < WEIGHT_MAX_BYTES, f"{name} weighs {weight_bytes:,} bytes"
    opened.check_use(each=True)
    opened.close()
