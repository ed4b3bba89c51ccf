"""`POST /api/v1/lineage` and its batches."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import secrets
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from served import JSON, event, own
from waiting import wait_until

from waybill.collector import serve
from waybill.transport import Journal, Rejects, Settings, SettingsError, locks
from waybill.transport.config import change

if TYPE_CHECKING:
    from conftest import Open, Start
    from inside import Inside

PATH = "/api/v1/lineage"
BATCH = "/api/v1/lineage/batch"


@pytest.mark.parametrize(
    "body",
    [
        event(),
        event(schemaURL="https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent", run=None),
        event(
            schemaURL="https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/DatasetEvent",
            dataset={"namespace": "file", "name": "/data/a"},
        ),
    ],
    ids=["run", "job", "dataset"],
)
def test_an_answered_event_is_in_the_journal_where_its_receipt_says(shared: Inside, body: bytes) -> None:
    reply = shared.post(PATH, body)
    assert (reply.status, reply.body) == (201, b"")
    node, _, seq = reply.headers["waybill-receipt"].partition("-")
    (entry,) = shared.journal.read(int(seq) - 1, limit=1)
    assert (node, entry.body, entry.system_name) == (shared.journal.node, body, "tests")


def test_a_repeat_has_the_receipt_of_the_first(shared: Inside) -> None:
    first, again = (shared.post(PATH, own(1)).headers["waybill-receipt"] for _ in range(2))
    assert first == again


MARK = b"\xef\xbb\xbf"
PACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": lambda body: MARK + body,
    "gzip": lambda body: gzip.compress(MARK + body),
    "zstd": lambda body: pa.compress(body, "zstd", asbytes=True),
}


@pytest.mark.parametrize("encoding", PACK)
def test_an_event_is_kept_as_plain_json_without_a_byte_order_mark(shared: Inside, encoding: str) -> None:
    body = own(encoding)
    assert shared.post(PATH, PACK[encoding](body), JSON | {"Content-Encoding": encoding}).status == 201
    assert shared.bodies()[-1] == body


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "not valid JSON"),
        (b"{", 400, "not valid JSON"),
        (b'{"a": "\xff"}', 400, "UTF-8"),
        (b"[]", 422, "$"),
        (b'"text"', 422, "$"),
        (event(eventTime="yesterday"), 422, "$.eventTime"),
        (event(run={}), 422, "$.run.runId"),
        (event(job={"namespace": "a", "name": "b\0"}), 422, "NUL"),
        (event().replace(b'"run":', b'"run": {"runId": "r"}, "run":', 1), 400, "'run' twice"),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, 422, "deep"),
    ],
)
def test_a_bad_event_is_refused_with_the_reason_as_a_problem(
    shared: Inside, body: bytes, status: int, words: str
) -> None:
    before = shared.bodies()
    reply = shared.post(PATH, body)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    assert reply.json["status"] == status
    assert words in reply.json["detail"]
    assert reply.json["errors"] == [reply.json["detail"]]
    assert shared.bodies() == before


def test_an_event_is_refused_with_the_same_reason_alone_and_in_a_batch(shared: Inside) -> None:
    bad = event(eventTime="yesterday", run={"runId": ""}, job={"namespace": "n"})
    (alone,) = shared.post(PATH, bad).json["errors"]
    assert alone.startswith("$.run.runId:")
    (failed,) = shared.post(BATCH, b"[" + own(8) + b"," + bad + b"]").json["failed_events"]
    assert failed == {"index": 1, "reason": alone, "retriable": False}


def test_a_batch_keeps_the_good_and_names_the_bad(shared: Inside) -> None:
    events = [own(10), event(eventTime=None), own(11), b"7"]
    reply = shared.post(BATCH, b"[" + b",".join(events) + b"]")
    answer = reply.json
    assert (reply.status, answer["status"]) == (200, "partial_success")
    assert answer["summary"] == {
        "received": 4,
        "successful": 2,
        "failed": 2,
        "retriable": 0,
        "non_retriable": 2,
    }
    assert [(one["index"], one["retriable"]) for one in answer["failed_events"]] == [(1, False), (3, False)]
    assert "eventTime" in answer["failed_events"][0]["reason"]
    assert shared.bodies()[-2:] == [own(10), own(11)]
    assert reply.headers["waybill-receipt"].endswith(f"-{len(shared.bodies())}")


@pytest.mark.parametrize(("body", "status"), [(b"[]", 200), (b"{}", 422), (b"[", 400), (b"[{]", 400)])
def test_a_batch_that_holds_nothing_keeps_nothing(shared: Inside, body: bytes, status: int) -> None:
    before = shared.bodies()
    assert shared.post(BATCH, body).status == status
    assert shared.bodies() == before


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("POST", "/api/v1/other", JSON, 404),
        ("PUT", PATH, JSON, 405),
        ("GET", PATH, {}, 405),
        ("POST", PATH, {}, 415),
        ("POST", PATH, {"Content-Type": "text/plain"}, 415),
        ("POST", PATH, JSON | {"Content-Encoding": "br"}, 415),
        ("POST", PATH, JSON | {"Content-Encoding": "gzip"}, 400),
        ("POST", PATH, JSON | {"Content-Encoding": "zstd"}, 400),
        ("POST", PATH, JSON | {"Host": "evil.example:80"}, 403),
        ("POST", PATH, JSON | {"Host": "[::1"}, 403),
    ],
)
def test_a_request_that_cannot_be_served_is_a_problem(
    shared: Inside, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    reply = shared.ask(method, path, event(), headers)
    assert (reply.status, reply.headers["content-type"]) == (status, "application/problem+json")
    assert reply.json["detail"]


def test_a_body_larger_than_the_limit_is_refused_before_it_is_sent(shared: Inside) -> None:
    assert shared.post(PATH, b"", JSON | {"Content-Length": str(65 << 20)}).status == 413


def test_a_compressed_bomb_is_refused(shared: Inside) -> None:
    content = b" " * (80 << 20)
    for encoding, bomb in (
        ("gzip", gzip.compress(content, compresslevel=9)),
        ("zstd", pa.compress(content, "zstd", asbytes=True)),
    ):
        assert len(bomb) < 1 << 20
        assert shared.post(PATH, bomb, JSON | {"Content-Encoding": encoding}).status == 413


def test_what_the_projections_have_not_dealt_with_in_time_stays_in_the_journal(
    start: Start, end_runner: Callable[[Path], None]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        collector = start("--marquez-url", url, "--drain-timeout", "1")
        assert collector.post(PATH, event()).status == 201
        wait_until(lambda: locks.holder(collector.home) is not None, 60)
        code, log = collector.stop()
    end_runner(collector.home)
    assert code == 0
    assert re.search(r"the time is up; these stay in the journal: 1 entry for \w+(, 1 entry for \w+)*\n", log)
    assert event() in collector.bodies()


def test_a_home_and_an_address_have_one_collector_which_works_its_projections_and_ends_silently(
    start: Start, tmp_path: Path
) -> None:
    first = start("--provenance-enabled", "--drain-timeout", "30")
    for home, problem in ((first.home, "another collector"), (tmp_path / "other", "use another host:port")):
        with pytest.raises(SettingsError, match=problem):
            serve(Settings.load({"home": home, "listen": first.address, "runner": "none"}, env={}))
    assert first.post(PATH, event()).status == 201
    assert first.stop() == (0, "")
    with contextlib.closing(Journal(first.home)) as journal:
        assert set(journal.cursors().values()) == {journal.last_seq()}


def test_a_full_journal_is_not_ready_and_busy_until_it_has_more_room(start: Start) -> None:
    collector = start("--runner", "none", "--journal-max-bytes", "1MiB")
    assert collector.get("/health/ready").json == {"ready": True, "problems": {}}
    assert collector.post(PATH, event(producer=secrets.token_urlsafe(660_000))).status == 201
    soon = collector.get("/health/ready").json
    assert (soon["ready"], "journal_max_bytes" in soon["problems"]["journal"]) == (True, True)
    assert collector.post(PATH, event(producer=secrets.token_hex(1_000_000))).status == 201
    ready = collector.get("/health/ready")
    assert (ready.status, "journal_max_bytes" in ready.json["problems"]["journal"]) == (503, True)
    assert collector.get("/health/live").status == 200
    # The size is looked at once a second.
    wait_until(lambda: collector.post(PATH, event()).status == 503)
    refused = collector.post(PATH, event())
    assert (refused.headers["retry-after"], refused.json["title"]) == ("2", "Service Unavailable")
    with contextlib.closing(Journal(collector.home)) as journal:
        change(journal, Settings.load({"home": journal.home, "journal_max_bytes": "20MiB"}, env={}))
    wait_until(lambda: collector.post(PATH, event()).status == 201)


def test_what_is_redacted_is_nowhere_in_the_home(inside: Open, home: Path) -> None:
    collector = inside(redact="job.facets.sql,run.facets.*.stackTrace")
    job = {"namespace": "n", "name": "j", "facets": {"sql": {"query": "SELECT hidden"}}}
    run = {"runId": "r", "facets": {"errorMessage": {"message": "no", "stackTrace": "at hidden"}}}
    whole = event(job=job, run=run)
    assert collector.post(PATH, whole).status == 201
    batch = b"[" + b",".join([event(job=job, eventType="FAIL"), event(job=job, eventTime="never")]) + b"]"
    assert collector.post(BATCH, batch).json["summary"]["successful"] == 1
    assert collector.post(PATH, whole[:-1]).status == 400
    kept = [json.loads(body) for body in collector.bodies()]
    assert [one["job"]["facets"] for one in kept] == [{}, {}]
    assert kept[0]["run"]["facets"] == {"errorMessage": {"message": "no"}}
    rejects = Rejects(collector.journal)
    assert sorted(len(rejects.body(one.id) or b"") > 0 for one in rejects.all()) == [False, True]
    assert not any(b"hidden" in file.read_bytes() for file in home.iterdir() if file.is_file())
