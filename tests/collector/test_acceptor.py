"""What waits for the disk has bounds, and goes on by itself."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from inside import Exchange, Scope
from served import JSON, Reply, own
from slow_disk import SlowSqlite
from waiting import wait_until

from waybill.collector.endpoints import health
from waybill.collector.intake import acceptor
from waybill.transport import Rejects

if TYPE_CHECKING:
    from conftest import Open

PATH = "/api/v1/lineage"


class Slow:
    """A collector whose disk stands still when it is told to."""

    def __init__(self, inside: Open, folder: Path) -> None:
        self._stop = folder / "stop"
        self._disk = SlowSqlite(self._stop)
        self.collector = inside(vfs=self._disk.name)

    def post(self, body: bytes) -> Future[Reply]:
        headers = JSON | {"Content-Length": str(len(body))}
        return self.collector.begin(Scope("POST", PATH, headers), Exchange(body))

    def stand_still(self, body: bytes) -> Future[Reply]:
        """Let somebody wait for the disk."""
        self._stop.touch()
        first = self.post(body)
        wait_until(self._stop.with_suffix(".waiting").exists)
        return first

    def go_on(self) -> None:
        self._stop.unlink()


@pytest.fixture
def slow(inside: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr(acceptor, "STALLED_S", float("inf"))
    return Slow(inside, tmp_path)


def statuses(*asked: Future[Reply]) -> list[int]:
    return [int(one.result(60).status) for one in asked]


def test_no_more_requests_wait_for_the_journal_than_may(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "WAITING_MAX", 300)
    asked = [slow.stand_still(own(0)), *(slow.post(own(number)) for number in range(1, 300))]
    for refused in [slow.post(own(-1)).result(60) for _ in range(3)]:
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert "the journal cannot keep up" in refused.json["detail"]
    slow.go_on()
    assert statuses(*asked) == [201] * 300
    receipts = [one.result().headers["waybill-receipt"] for one in asked]
    assert sorted(int(one.rpartition("-")[2]) for one in receipts) == list(range(1, 301))
    assert statuses(slow.post(own(300))) == [201]
    assert sorted(slow.collector.bodies()) == sorted(map(own, range(301)))


def test_while_a_commit_takes_too_long_nobody_else_is_let_in(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = slow.collector.journal
    monkeypatch.setattr(acceptor, "STALLED_S", 0.1)
    first = slow.stand_still(own(1))
    wait_until(lambda: journal.committing_s > 0.1)
    refused = slow.post(own(2)).result(60)
    assert (refused.status, "cannot keep up" in refused.json["detail"]) == (503, True)
    slow.go_on()
    assert statuses(first) == [201]
    wait_until(lambda: not journal.committing_s)
    assert statuses(slow.post(own(3))) == [201]
    assert slow.collector.bodies() == [own(1), own(3)]


def test_a_request_that_is_cancelled_costs_the_others_nothing(slow: Slow) -> None:
    first, before, cancelled, after = slow.stand_still(own(0)), *(slow.post(own(at)) for at in (1, 2, 3))
    cancelled.cancel()
    slow.go_on()
    assert statuses(first, before, after) == [201] * 3
    with pytest.raises(CancelledError):
        cancelled.result()


def test_no_more_requests_wait_for_what_was_refused_of_them_than_may(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "REJECTING_MAX", 50)
    bad = [b"{%d" % number for number in range(51)]
    asked = [slow.stand_still(bad[0]), *map(slow.post, bad[1:50])]
    refused = slow.post(b"{").result(60)
    assert (refused.status, "rejects arrive faster" in refused.json["detail"]) == (503, True)
    slow.go_on()
    assert statuses(*asked) == [400] * 50
    assert statuses(slow.post(bad[50])) == [400]
    rejects = Rejects(slow.collector.journal)
    assert {rejects.body(one.id) for one in rejects.all()} == set(bad)
    metrics = slow.collector.get("/metrics").body.decode()
    assert 'waybill_rejected_total{kind="openlineage"} 51' in metrics.splitlines()


def test_a_disk_that_does_not_keep_up_is_not_ready_and_keeps_no_other_question_waiting(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "STALLED_S", 0.2)
    collector = slow.collector
    held_up = slow.stand_still(own(0))
    with ThreadPoolExecutor(8) as pool:
        # As many as there are threads for what may wait; each is asked again before it is answered.
        looks = [pool.submit(collector.get, "/health/ready") for _ in range(8)]
        bad = [slow.post(b"{%d" % at) for at in range(8)]
        assert collector.get("/health/live").status == 200
        assert "waybill_accepted_total" in collector.get("/metrics").body.decode()
        for look in (*(look.result() for look in looks), collector.get("/health/ready")):
            assert (look.status, look.json["ready"], list(look.json["problems"])) == (503, False, ["journal"])
    assert not held_up.done()
    slow.go_on()
    assert statuses(held_up, *bad) == [201, *[400] * 8]
    wait_until(lambda: collector.get("/health/ready").status == 200)
