"""What was set aside, and the buttons that have it tried again, which only those who administer have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw
import pytest
from browsing import visit
from contract_server import ContractServer
from events import event
from sent_forms import HTML, cookie_of, send, sign_in, token_in
from served import Collector, without_runner

from waybill.exporter import Query
from waybill.lineage import find
from waybill.marquez import dead_letters
from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

DAMAGED: Final = 2


def run_of(number: int) -> str:
    return f"01a1fd6a-9e75-7d78-0000-{number:012}"


class Broken:
    """A home with an entry that was damaged in the journal, and others that its backend refuses."""

    def __init__(self, keys: dict[str, str], backend: ContractServer) -> None:
        self.keys = keys
        self.backend = backend
        given = {"home": Path(keys["home"]), "provenance_enabled": True, "archive_enabled": False}
        self.settings = Settings.load({**given, "marquez_url": backend.url}, env={})
        journal = Journal(self.settings.home)
        journal.append_many(
            (Kind.OPENLINEAGE, event(run_of(number), job=f"etl/{number}"), "") for number in (1, DAMAGED, 3)
        )
        connection = apsw.Connection(str(journal.path))
        body = event(run_of(9), job=f"etl/{DAMAGED}")
        connection.execute("UPDATE entries SET body = ? WHERE seq = ?", (body, DAMAGED))
        connection.close()
        journal.close()
        self.flush()

    def flush(self) -> None:
        """What the runner would do."""
        assert flush(self.settings, timeout_s=60).problems == {}

    def set_aside(self) -> dict[str, set[tuple[str, int]]]:
        """What is in the boxes, by its owner and number."""
        journal = Journal(self.settings.home, to_read=True)
        try:
            return {
                "dead-letters": {(one.backend, one.seq) for one in dead_letters(journal)},
                "poison": {(one.projection, one.seq) for one in journal.poison.all()},
            }
        finally:
            journal.close()


@pytest.fixture(scope="module")
def broken(keys: dict[str, str]) -> Iterator[Broken]:
    backend = ContractServer(fault="422").start()
    yield Broken(keys, backend)
    backend.refuse()


@pytest.fixture(scope="module")
def guarded(broken: Broken) -> Iterator[Collector]:
    options = ("--provenance-enabled", "--no-archive-enabled", "--marquez-url", broken.backend.url)
    with without_runner(broken.settings.home, *options) as collector:
        yield collector


def test_who_only_reads_sees_why_and_changes_nothing(guarded: Collector, broken: Broken) -> None:
    before = broken.set_aside()
    cookie = cookie_of(sign_in(guarded, broken.keys["read"]))
    page = guarded.get("/health", HTML | {"Cookie": cookie})
    assert b"fault 422 on request" in page.body
    assert b"Retry" not in page.body
    token = token_in(page)
    for box, items in before.items():
        assert items, f"nothing is in {box}"
        for owner, number in items:
            refused = send(guarded, "/health/retry", cookie, csrf=token, box=box, owner=owner, id=str(number))
            assert refused.status == 403
    broken.flush()
    assert broken.set_aside() == before


def press(page: Page, box: str, owner: str, number: int) -> None:
    page.get_by_role("button", name=f"Retry {number}, set aside by {owner}").click()
    page.wait_for_load_state()
    assert page.url.endswith(f"/health#{box}"), "it is the box again"


def test_who_administers_has_dead_letters_and_poison_tried_again(
    browser: Browser, guarded: Collector, broken: Broken
) -> None:
    before = broken.set_aside()
    broken.backend.fault = None
    opened = visit(browser, f"{guarded.url}/health")
    page = opened.page
    page.get_by_label("API key").fill(broken.keys["admin"])
    page.get_by_role("button", name="Sign in").click()
    press(page, "dead-letters", "marquez", 1)
    press(page, "poison", "layout", DAMAGED)
    assert broken.set_aside() == before, "the runner has not tried them yet"
    broken.flush()
    left = broken.set_aside()
    assert before["dead-letters"] - left["dead-letters"] == {("marquez", 1)}
    assert before["poison"] - left["poison"] == {("layout", DAMAGED)}
    assert [one["run"]["runId"] for one in broken.backend.stored] == [run_of(1)]
    assert len(find(broken.settings.home, Query(did=run_of(9)))) == 1, "it is filed as it is"
    page.reload()
    shown = {button.get_attribute("aria-label") for button in page.get_by_role("button", name="Retry").all()}
    assert shown == {
        f"Retry {number}, set aside by {owner}" for items in left.values() for owner, number in items
    }
    opened.close()
