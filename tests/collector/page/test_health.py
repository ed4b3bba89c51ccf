"""What was set aside, and the buttons that have it tried again, which only those who administer have."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw
import pytest
from contract_server import ContractServer
from events import event
from inside import Inside
from read_pages import HTML
from sent_forms import cookie_of, send, sign_in, token_in

from waybill.exporter import Query
from waybill.lineage import find
from waybill.marquez import dead_letters
from waybill.transport import Journal, Kind, Rejects, Settings, flush

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Open

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
def guarded(broken: Broken) -> Iterator[Inside]:
    given: dict[str, Any] = {
        "provenance_enabled": True,
        "archive_enabled": False,
        "marquez_url": broken.backend.url,
    }
    with contextlib.closing(Inside(broken.settings.home, **given)) as collector:
        yield collector


def test_who_only_reads_sees_why_and_changes_nothing(guarded: Inside, broken: Broken) -> None:
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


def test_who_administers_has_dead_letters_and_poison_tried_again(guarded: Inside, broken: Broken) -> None:
    before = broken.set_aside()
    broken.backend.fault = None
    cookie = cookie_of(sign_in(guarded, broken.keys["admin"]))
    token = token_in(guarded.get("/health", HTML | {"Cookie": cookie}))
    for box, owner, number in (("dead-letters", "marquez", 1), ("poison", "layout", DAMAGED)):
        sent = send(guarded, "/health/retry", cookie, csrf=token, box=box, owner=owner, id=str(number))
        assert (sent.status, sent.headers["location"]) == (303, f"/health#{box}")
    assert broken.set_aside() == before, "the runner has not tried them yet"
    broken.flush()
    left = broken.set_aside()
    assert before["dead-letters"] - left["dead-letters"] == {("marquez", 1)}
    assert before["poison"] - left["poison"] == {("layout", DAMAGED)}
    assert [one["run"]["runId"] for one in broken.backend.stored] == [run_of(1)]
    assert len(find(broken.settings.home, Query(did=run_of(9)))) == 1, "it is filed as it is"
    page = guarded.get("/health", HTML | {"Cookie": cookie}).body.decode()
    assert set(re.findall('aria-label="(Retry [^"]*)"', page)) == {
        f"Retry {number}, set aside by {owner}" for items in left.values() for owner, number in items
    }


def test_a_reject_that_is_refused_again_stays_where_it_is(inside: Open) -> None:
    collector = inside()
    assert collector.post("/api/v1/lineage", b"{}").status == 422
    (reject,) = Rejects(collector.journal).all()
    token = token_in(collector.get("/health", HTML))
    again = send(collector, "/health/retry", csrf=token, box="rejects", id=reject.id)
    assert (again.status, "it is refused again" in again.body.decode()) == (422, True)
    assert Rejects(collector.journal).all() == [reject]
    assert send(collector, "/health/retry", csrf=token, box="rejects", id="x").status == 404
    assert send(collector, "/health/retry", csrf="0", box="rejects", id=reject.id).status == 403
