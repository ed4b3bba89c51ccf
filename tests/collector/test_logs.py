"""The collector's log: what is refused and why, and never so much that it fills a disk."""

from __future__ import annotations

import io
import json
import logging
import secrets
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
from manual_clock import ManualClock
from served import event, record
from waiting import wait_until

from waybill.collector.app import Application
from waybill.collector.http import Answer, Bodies, Endpoint, Problem, Request
from waybill.collector.logs import KINDS_MAX, PERIOD_S, Log, about

if TYPE_CHECKING:
    from conftest import Open, Start

PATH = "/api/v1/lineage"


class Told:
    """A log of a test's own, with a clock that the test moves."""

    def __init__(self, *, as_json: bool = True) -> None:
        self.clock = ManualClock()
        self.stream = io.StringIO()
        self.handler = Log(self.stream, as_json=as_json, clock=self.clock)
        self.logger = logging.Logger("waybill.tests")  # noqa: LOG001 - one that no other test has
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


def test_a_repeat_is_counted_and_told_once_a_minute() -> None:
    told = Told()
    for at in range(1_000):
        told.logger.info("refused", extra=about({"status": 422}, {"client": f"1.1.1.1:{at}"}))
        told.logger.info("refused", extra=about({"status": 400}))
    told.handler.sum_up()
    assert [(line["status"], line.get("client"), line.get("repeats")) for line in told.lines] == [
        (422, "1.1.1.1:0", None),
        (400, None, None),
    ]
    told.clock.move(PERIOD_S)
    told.handler.sum_up()
    assert [(line["status"], line.get("client"), line.get("repeats")) for line in told.lines[2:]] == [
        (422, None, 999),
        (400, None, 999),
    ]
    told.logger.info("refused", extra=about({"status": 422}, {"client": "2.2.2.2:2"}))
    assert told.lines[-1]["client"] == "2.2.2.2:2"


def test_a_flood_of_different_lines_is_bounded() -> None:
    told = Told()
    for at in range(10 * KINDS_MAX):
        told.logger.warning("number %d", at)
    told.handler.sum_up(at_end=True)
    assert len(told.lines) == KINDS_MAX + 2
    assert told.lines[-1]["repeats"] == 9 * KINDS_MAX - 1


def test_a_line_of_text_stays_one_whatever_is_in_it() -> None:
    told = Told(as_json=False)
    told.logger.error("a\nb", extra=about({"path": '/x" y=1\n'}))
    (line,) = told.stream.getvalue().splitlines()
    assert line.endswith(r' error a b path="/x\" y=1\n"')


def test_an_exception_is_told_with_its_traceback_in_one_line_of_json() -> None:
    told = Told()
    try:
        json.loads("{")
    except ValueError:
        told.logger.exception("a request failed")
    (line,) = told.lines
    assert (line["level"], line["message"]) == ("error", "a request failed")
    assert "JSONDecodeError" in str(line["exception"])


def test_refusals_are_logged_by_default_with_their_reasons_and_never_with_a_body(start: Start) -> None:
    collector = start("--runner", "none", "--log-format", "json", "--journal-max-bytes", "1MiB")
    assert collector.get("/nowhere").status == 404
    for _ in range(3):
        assert collector.post(PATH, b"{s3cr3t").status == 400
        assert collector.post(PATH, event(eventType=7, producer="s3cr3t")).status == 422
    assert collector.post("/provenance", json.dumps([record(finalState="s3cr3t")]).encode()).status == 422
    assert collector.post("/provenance", b'{"s3cr3t": 1}').status == 422
    # The size is looked at once a second.
    wait_until(
        lambda: collector.post(PATH, event(producer="s3cr3t" + secrets.token_hex(100_000))).status == 503
    )
    _, log = collector.stop()
    assert "s3cr3t" not in log
    lines = [json.loads(line) for line in log.splitlines()]
    found = {
        (line.get("status"), line.get("path"), line.get("reason"), line.get("repeats")) for line in lines
    }
    assert {
        (404, "other", "Not Found", None),
        (400, PATH, "malformed", None),
        (400, PATH, "malformed", 2),
        (422, PATH, "wrong: $.eventType", None),
        (422, PATH, "wrong: $.eventType", 2),
        (422, "/provenance", "all records are wrong", None),
    } <= found
    (cause,) = [
        line for line in lines if "nothing can be stored" in line["message"] and "repeats" not in line
    ]
    assert cause["level"] == "warning"
    assert {line["level"] for line in lines if line.get("status") in {400, 404, 422}} == {"info"}


def test_a_request_that_fails_is_answered_with_500_and_logged_with_its_traceback(
    inside: Open, caplog: pytest.LogCaptureFixture
) -> None:
    collector = inside()
    receipt = collector.post(PATH, event(producer="s3cr3t")).headers["waybill-receipt"]
    collector.journal.commit("runner", put={"layout": b"{ no status"})
    failed = collector.get(f"/where?receipt={receipt}")
    assert (failed.status, failed.json["detail"]) == (500, "see the server's log for the cause")
    collector.journal.commit("runner", delete=["layout"])
    assert collector.get(f"/where?receipt={receipt}").status == 200
    (line,) = (line for line in caplog.records if line.getMessage() == "a request failed")
    same = {"path": "/where", "method": "GET", "error": "DecodeError"}
    assert (line.levelname, vars(line)["same"]) == ("ERROR", same)
    assert "receipt_status" in caplog.text
    assert "s3cr3t" not in caplog.text


async def broken_off() -> AsyncIterator[bytes]:
    yield b"begun"
    raise ValueError("the rest is missing")


async def answer_in_parts(_: Request) -> Answer:
    return Answer(HTTPStatus.OK, [], parts=broken_off())


async def refuse(_: Request) -> Answer:
    raise Problem(HTTPStatus.BAD_REQUEST, "it is wrong")


def show_nothing(_: Request, problem: Problem) -> Answer:
    raise LookupError("there is no page for it") from problem


@pytest.mark.parametrize(
    ("endpoint", "status", "body", "error"),
    [
        (Endpoint("/parts", None, answer_in_parts), 200, b"begun", "ValueError"),
        (Endpoint("/page", None, refuse, show_problem=show_nothing), 500, None, "LookupError"),
    ],
    ids=["an answer that has begun", "a problem that is shown"],
)
def test_whatever_fails_after_the_answer_is_made_is_logged_and_counted_too(
    inside: Open,
    caplog: pytest.LogCaptureFixture,
    endpoint: Endpoint,
    status: int,
    body: bytes | None,
    error: str,
) -> None:
    collector = inside()
    collector.application = Application([endpoint], Bodies(), collector.auth, collector.metrics)
    reply = collector.get(endpoint.path)
    assert (reply.status, reply.body if body else None) == (status, body)
    (line,) = (line for line in caplog.records if line.getMessage() == "a request failed")
    same = {"path": endpoint.path, "method": "GET", "error": error}
    assert (vars(line)["same"], line.exc_info is not None) == (same, True)
    counted = ("requests", (("path", endpoint.path), ("method", "GET"), ("status", "500")))
    assert collector.metrics.counts[counted] == 1
