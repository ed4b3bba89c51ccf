"""Who may come in, and what operators see."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec
import pytest
from served import JSON, Collector, event, reply_of, status_of, without_runner
from waiting import wait_until

from waybill.collector import Keys, Role
from waybill.collector.openapi import description
from waybill.exporter import Query
from waybill.lineage import CollectorReadError, Lineage
from waybill.marquez import Counters
from waybill.marquez.links import CollectorLinks
from waybill.transport import Journal
from waybill.transport.errors import NameTakenError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Start


def bearer(key: str) -> dict[str, str]:
    return JSON | {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded(keys: dict[str, str]) -> Iterator[Collector]:
    from pathlib import Path

    with without_runner(Path(keys["home"]), "--provenance-enabled") as collector:
        yield collector


def test_python_asks_with_the_key_of_the_settings(
    guarded: Collector, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", keys["read"])
    assert Lineage.open(guarded.url).find(Query(did="none")) == []
    monkeypatch.setenv("OPENLINEAGE_API_KEY", keys["emit"])
    with pytest.raises(CollectorReadError, match="403: the key emit does not have the role read") as refused:
        Lineage.open(guarded.url).count()
    assert keys["emit"] not in str(refused.value)


@pytest.mark.parametrize(
    ("method", "path", "roles"),
    [
        ("POST", "/api/v1/lineage", {"emit", "admin"}),
        ("POST", "/api/v1/lineage/batch", {"emit", "admin"}),
        ("POST", "/provenance", {"emit", "admin"}),
        ("GET", "/provenance/query", {"read", "admin"}),
        ("GET", "/provenance/stats", {"read", "admin"}),
        ("GET", "/api/v1/records", {"read", "admin"}),
        ("GET", "/api/v1/records/stats", {"read", "admin"}),
        ("POST", "/provenance/flush", {"admin"}),
        ("GET", "/metrics", {"read", "admin"}),
        ("GET", "/health/live", {"emit", "read", "admin", "wrong", ""}),
        ("GET", "/health/ready", {"emit", "read", "admin", "wrong", ""}),
        ("GET", "/openapi.json", {"emit", "read", "admin", "wrong", ""}),
        ("GET", "/docs", {"emit", "read", "admin", "wrong", ""}),
        ("GET", "/schemas/WaybillDeltaFileRunFacet-1-0-0", {"emit", "read", "admin", "wrong", ""}),
        ("GET", "/api/v1/lineage-graph", {"read", "admin"}),
        ("GET", "/api/v1/impact", {"read", "admin"}),
        ("GET", "/api/v1/origins", {"read", "admin"}),
        ("GET", "/api/v1/search", {"read", "admin"}),
        ("GET", "/api/v1/analyzers", {"read", "admin"}),
        ("GET", "/api/v1/names", {"read", "admin"}),
        ("GET", "/api/v1/whole-graph", {"read", "admin"}),
        ("GET", "/api/v1/datasets/unused", {"read", "admin"}),
        ("GET", "/api/v1/datasets/stale", {"read", "admin"}),
        ("GET", "/api/v1/datasets/duplicate-producers", {"read", "admin"}),
        ("GET", "/api/v1/datasets/schema-changes", {"read", "admin"}),
        ("GET", "/api/v1/runs", {"read", "admin"}),
        ("GET", "/slis", {"read", "admin"}),
        ("GET", "/where", {"read", "admin"}),
    ],
)
def test_a_door_opens_for_its_role_only(
    guarded: Collector, keys: dict[str, str], method: str, path: str, roles: set[str]
) -> None:
    body = {"/provenance": b"[]", "/api/v1/lineage/batch": b"[]"}.get(path, event())
    refused = {}
    for role in ("emit", "read", "admin", "wrong", ""):
        headers = bearer(keys.get(role, "wbk_wrong")) if role else JSON
        if path == "/provenance/flush" and role == "admin":
            continue  # it would work the projections here
        status = guarded.ask(method, path, body if method == "POST" else None, headers).status
        if status in {401, 403}:
            refused[role] = status
    assert set(refused) == {"emit", "read", "admin", "wrong", ""} - roles
    assert {refused[role] for role in ("wrong", "") if role in refused} <= {401}


SIMPLE = [
    "",
    "text/plain",
    "text/plain; application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
]
"""Requests that a web page can send to another origin without a preflight."""


def test_without_keys_a_page_in_a_browser_can_change_nothing(start: Start) -> None:
    collector = start("--runner", "none")
    for path in ("/provenance/flush", "/provenance", "/api/v1/lineage"):
        for content_type in SIMPLE:
            headers = {"Content-Type": content_type} if content_type else {}
            reply = collector.ask("POST", path, b"[]", headers | {"Origin": "https://evil.example"})
            assert (reply.status, "application/json" in reply.json["detail"]) == (415, True), reply


def test_a_revoked_key_opens_nothing_and_no_secret_is_logged(
    start: Start, home: Path, journal: Journal
) -> None:
    key, other = Keys(journal).add("spark", [Role.EMIT]), Keys(journal).add("other", [Role.ADMIN])
    with pytest.raises(NameTakenError, match="another name"):
        Keys(journal).add("spark", [Role.READ])
    assert key.encode() not in (home / "journal.db-wal").read_bytes()
    collector = start("--runner", "none")
    assert collector.post("/api/v1/lineage", event(), bearer(key)).status == 201
    assert collector.get("/provenance/stats", bearer(key)).status == 403
    assert Keys(journal).revoke("spark")
    deadline_s = time.monotonic() + 5
    while (status := collector.post("/api/v1/lineage", event(), bearer(key)).status) == 201:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert status == 401
    metrics = collector.get("/metrics", bearer(other)).body.decode()
    assert re.search(r'^waybill_refused_access_total\{status="403"\} 1$', metrics, re.MULTILINE)
    code, log = collector.stop()
    assert (code, key in log, other in log) == (0, False, False)
    for refused, *words in (("403", "path=/provenance/stats", "key=spark"), ("401", "path=/api/v1/lineage")):
        (line,) = [line for line in log.splitlines() if f"status={refused}" in line]
        for word in ("warning refused access", "client=127.0.0.1:", *words):
            assert word in line


@pytest.mark.parametrize("given", [(), ("--without-keys",), ("--workers", "2", "--without-keys")])
def test_revoking_the_last_key_opens_nothing(start: Start, journal: Journal, given: tuple[str, ...]) -> None:
    key = Keys(journal).add("spark", [Role.ADMIN])
    collector = start("--runner", "none", *given)
    assert collector.post("/api/v1/lineage", event(), bearer(key)).status == 201
    assert Keys(journal).revoke("spark")
    deadline_s = time.monotonic() + 10
    while collector.get("/metrics", bearer(key)).status == 200:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    time.sleep(3)  # longer than each of its processes takes to notice
    for _ in range(20):
        assert collector.post("/api/v1/lineage", event()).status == 401
    assert collector.get("/health/live").status == 200
    other = Keys(journal).add("spark", [Role.EMIT])
    while (status := collector.post("/api/v1/lineage", event(), bearer(other)).status) == 401:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert status in {200, 201}


def test_a_collector_that_had_keys_is_opened_by_its_user_only(start: Start, journal: Journal) -> None:
    Keys(journal).add("spark", [Role.ADMIN])
    assert Keys(journal).revoke("spark")
    collector = start("--runner", "none")
    reply = collector.post("/api/v1/lineage", event())
    assert (reply.status, "waybill keys add" in reply.json["detail"]) == (401, True)
    collector.stop()
    assert start("--runner", "none", "--without-keys").post("/api/v1/lineage", event()).status == 201


def test_a_key_that_is_made_while_a_collector_runs_closes_it_for_good(start: Start, journal: Journal) -> None:
    collector = start("--runner", "none")
    assert collector.get("/metrics").status == 200
    Keys(journal).add("spark", [Role.ADMIN])
    deadline_s = time.monotonic() + 10
    while collector.get("/metrics").status == 200:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    assert Keys(journal).revoke("spark")
    time.sleep(3)  # longer than the collector takes to notice
    assert collector.get("/metrics").status == 401


def test_other_machines_are_let_in_with_keys_or_if_told_so_only(start: Start) -> None:
    with pytest.raises(AssertionError, match="waybill keys add"):
        start("--runner", "none", "--listen", "0.0.0.0:0")
    collector = start("--runner", "none", "--listen", "0.0.0.0:0", "--without-keys")
    assert collector.post("/api/v1/lineage", event()).status == 201


def test_with_allowed_hosts_no_other_name_is_answered(start: Start) -> None:
    given = ("--without-keys", "--allow-host", "Collector", "--allow-host", "lineage.example.com")
    collector = start("--runner", "none", "--listen", "0.0.0.0:0", *given)
    port = collector.url.rpartition(":")[2]
    assert linked_to(collector) == f"http://{socket.gethostname()}:{port}", "users cannot reach 0.0.0.0"
    statuses = {
        host: collector.ask("GET", "/api/v1/records", headers={"Host": host}).status
        for host in ("localhost:8090", "127.0.0.1", "collector:80", "LINEAGE.example.com", "evil.example", "")
    }
    assert [host for host, status in statuses.items() if status != 200] == ["evil.example", ""]
    reply = collector.ask("GET", "/api/v1/records", headers={"Host": "evil.example"})
    assert (reply.status, "collector, lineage.example.com" in reply.json["detail"]) == (403, True)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example@127.0.0.1",
        "evil.example:80@localhost",
        "localhost/evil.example",
        "127.0.0.1?evil.example",
        "127.0.0.1#evil.example",
        "127.0.0.1 evil.example",
        "[::1]evil.example",
        "127.0.0.1:80:80",
    ],
)
def test_a_host_is_a_name_and_maybe_a_port(shared: Collector, host: str) -> None:
    assert status_of(shared, f"GET /where HTTP/1.1\r\nHost: {host}\r\n") in {400, 403}


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:80"]
)
def test_each_name_of_this_machine_is_answered(shared: Collector, host: str) -> None:
    assert status_of(shared, f"GET /health/live HTTP/1.1\r\nHost: {host}\r\n") == 200
    assert status_of(shared, f"GET http://{host}/health/live HTTP/1.1\r\nHost: {host}\r\n") == 200


@pytest.mark.parametrize(
    "hosts", [("localhost", "evil.example"), ("evil.example", "localhost"), ("localhost",) * 2]
)
def test_several_hosts_are_refused(shared: Collector, hosts: tuple[str, str]) -> None:
    headers = "".join(f"Host: {host}\r\n" for host in hosts)
    assert status_of(shared, f"GET /health/live HTTP/1.1\r\n{headers}") == 400


@pytest.mark.parametrize(("named", "host"), [("localhost", "evil.example"), ("evil.example", "localhost")])
def test_an_address_with_another_host_is_refused(shared: Collector, named: str, host: str) -> None:
    head = f"GET http://{named}/health/live HTTP/1.1\r\nHost: {host}\r\n"
    assert status_of(shared, head) in {400, 403}


def linked_to(collector: Collector) -> str:
    """The address to which events link."""
    journal = Journal(collector.home)
    try:
        return CollectorLinks(journal).base
    finally:
        journal.close()


def test_it_speaks_tls_if_told_so(start: Start, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is not on this machine")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = f"{openssl} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True, timeout=60)
    collector = start("--runner", "none", "--tls-cert", str(cert), "--tls-key", str(key))
    assert collector.url.startswith("https://127.0.0.1:")
    assert linked_to(collector) == collector.url
    context = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection(collector.address, timeout=30, context=context)
    assert reply_of(connection, "POST", "/api/v1/lineage", event(), JSON).status == 201
    journal = Journal(collector.home)
    secret = Keys(journal).add("reader", [Role.READ])
    journal.close()
    html = {"Accept": "text/html"}
    wait_until(lambda: reply_of(connection, "GET", "/sign-in", None, html).status == 200)
    page = reply_of(connection, "GET", "/sign-in", None, html).body.decode()
    form = urlencode({"csrf": re.findall(r'name="csrf" value="(\w+)"', page)[0], "key": secret})
    sent = html | {"Origin": collector.url, "Content-Type": "application/x-www-form-urlencoded"}
    signed_in = reply_of(connection, "POST", "/sign-in", form, sent)
    assert (signed_in.status, "; secure" in signed_in.headers["set-cookie"].lower()) == (303, True)
    connection.close()
    with pytest.raises((OSError, http.client.HTTPException)):
        collector.post("/api/v1/lineage", event())


def test_metrics_count_what_was_taken_and_refused(shared: Collector) -> None:
    for body, status in ((event(), 201), (event(), 201), (b"{", 400)):
        assert shared.post("/api/v1/lineage", body).status == status
    assert shared.get("/nowhere").status == 404
    reply = shared.get("/metrics")
    lines = reply.body.decode().splitlines()
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'waybill_accepted_total{kind="openlineage"} 2',
        f'waybill_accepted_bytes_total{{kind="openlineage"}} {2 * len(event())}',
        "waybill_repeated_total 1",
        'waybill_rejected_total{kind="openlineage"} 1',
        'waybill_requests_total{path="/api/v1/lineage",method="POST",status="201"} 2',
        'waybill_requests_total{path="other",method="other",status="404"} 1',
        'waybill_request_seconds_count{path="/api/v1/lineage"} 3',
        "waybill_journal_last_seq 1",
        f"waybill_journal_max_bytes {10 * 2**30}",
    ):
        assert line in lines
    sample = re.compile(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


def test_metrics_say_what_became_of_a_backends_events(start: Start) -> None:
    collector = start("--runner", "none")
    journal = Journal(collector.home)
    figures = Counters(delivered=7, failed=2, refused=1, coalesced=900, summaries=3)
    journal.commit("marquez", cursor=0, put={"figures": msgspec.json.encode(figures)})
    said = b'{"problem":"it does not let us in; correct marquez_api_key","to_correct":"marquez_api_key"}'
    journal.commit("runner", put={"marquez": said})
    journal.close()
    lines = collector.get("/metrics").body.decode().splitlines()
    for what, count in (
        ("delivery_delivered_total", 7),
        ("delivery_failed_total", 2),
        ("delivery_refused_total", 1),
        ("delivery_coalesced_total", 900),
        ("delivery_summaries_total", 3),
        ("dead_letters", 0),
        ("projection_behind", 0),
    ):
        assert f'waybill_{what}{{projection="marquez"}} {count}' in lines
    assert 'waybill_problem{kind="setting",name="marquez"} 1' in lines
    assert any(line.startswith('waybill_projection_age_seconds{projection="marquez"} ') for line in lines)


def test_a_collector_that_cannot_keep_anything_is_not_ready(start: Start) -> None:
    collector = start("--runner", "none", "--journal-max-bytes", "1MiB")
    assert collector.get("/health/ready").json == {"ready": True, "problems": {}}
    assert collector.post("/api/v1/lineage", event(producer=secrets.token_urlsafe(660_000))).status == 201
    soon = collector.get("/health/ready").json
    assert (soon["ready"], "journal_max_bytes" in soon["problems"]["journal"]) == (True, True)
    assert collector.post("/api/v1/lineage", event(producer=secrets.token_hex(1_000_000))).status == 201
    reply = collector.get("/health/ready")
    assert (reply.status, reply.json["ready"], "journal_max_bytes" in reply.json["problems"]["journal"]) == (
        503,
        False,
        True,
    )
    assert collector.get("/health/live").status == 200


def test_the_description_names_every_path_and_method(shared: Collector) -> None:
    described = shared.get("/openapi.json").json
    assert described == json.loads(json.dumps(description()))
    known = set(re.findall(r"/[\w/.{}-]+", shared.get("/nowhere").json["detail"]))
    assert set(described["paths"]) == known
    for path, methods in described["paths"].items():
        allowed = sorted([*methods, "head"] if "get" in methods else methods)
        assert shared.ask("DELETE", path).headers["allow"].lower() == ", ".join(allowed)
