"""Who may come in, and what operators see."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec
import pytest
from served import JSON, Collector, event, reply_of, status_of, without_runner
from waiting import wait_until

from waybill.collector import Keys, Role, serve
from waybill.collector.openapi import description
from waybill.exporter import Query
from waybill.lineage import CollectorReadError, Lineage
from waybill.marquez import Counters
from waybill.marquez.links import CollectorLinks
from waybill.transport import Journal, Settings, SettingsError
from waybill.transport.errors import NameTakenError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Open, Start
    from inside import Inside


def bearer(key: str) -> dict[str, str]:
    return JSON | {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """One that gets what no library would send."""
    with without_runner(tmp_path_factory.mktemp("listening") / "home") as collector:
        yield collector


EMITTERS, READERS, ANYBODY = {"emit", "admin"}, {"read", "admin"}, {"emit", "read", "admin", "wrong", ""}
READ = (
    *(
        "/provenance/query",
        "/provenance/stats",
        "/api/v1/records",
        "/api/v1/records/stats",
        "/s/1",
        "/metrics",
    ),
    *("/api/v1/lineage-graph", "/api/v1/impact", "/api/v1/origins", "/api/v1/search", "/api/v1/analyzers"),
    *("/api/v1/names", "/api/v1/whole-graph", "/api/v1/runs", "/slis", "/where"),
    *(f"/api/v1/datasets/{name}" for name in ("unused", "stale", "duplicate-producers", "schema-changes")),
)
SCHEMA = "/schemas/WaybillDeltaFileRunFacet-1-0-0"
DOORS = [
    *(("POST", path, EMITTERS) for path in ("/api/v1/lineage", "/api/v1/lineage/batch", "/provenance")),
    *(("GET", path, READERS) for path in READ),
    ("POST", "/provenance/flush", {"admin"}),
    *(("GET", path, ANYBODY) for path in ("/health/live", "/health/ready", "/openapi.json", "/docs", SCHEMA)),
]


@pytest.mark.parametrize(("method", "path", "roles"), DOORS)
def test_a_door_opens_for_its_role_only(
    guarded: Inside, keys: dict[str, str], method: str, path: str, roles: set[str]
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


def test_without_keys_a_page_in_a_browser_can_change_nothing(inside: Open) -> None:
    collector = inside()
    for path in ("/provenance/flush", "/provenance", "/api/v1/lineage"):
        for content_type in SIMPLE:
            headers = {"Content-Type": content_type} if content_type else {}
            reply = collector.ask("POST", path, b"[]", headers | {"Origin": "https://evil.example"})
            assert (reply.status, "application/json" in reply.json["detail"]) == (415, True), reply


def test_a_revoked_key_opens_nothing_and_no_secret_is_logged_or_told(
    start: Start, home: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, other = Keys(journal).add("spark", [Role.EMIT]), Keys(journal).add("other", [Role.ADMIN])
    with pytest.raises(NameTakenError, match="another name"):
        Keys(journal).add("spark", [Role.READ])
    assert key.encode() not in (home / "journal.db-wal").read_bytes()
    collector = start("--runner", "none")
    assert collector.post("/api/v1/lineage", event(), bearer(key)).status == 201
    assert collector.get("/provenance/stats", bearer(key)).status == 403
    monkeypatch.setenv("OPENLINEAGE_API_KEY", other)
    assert Lineage.open(collector.url).find(Query(did="none")) == []
    monkeypatch.setenv("OPENLINEAGE_API_KEY", key)
    with pytest.raises(CollectorReadError, match="403: the key spark does not have the role read") as refused:
        Lineage.open(collector.url).count()
    assert key not in str(refused.value)
    assert Keys(journal).revoke("spark")
    wait_until(lambda: collector.post("/api/v1/lineage", event(), bearer(key)).status == 401)
    metrics = collector.get("/metrics", bearer(other)).body.decode()
    assert re.search(r'^waybill_refused_access_total\{status="403"\} 2$', metrics, re.MULTILINE)
    code, log = collector.stop()
    assert (code, key in log, other in log) == (0, False, False)
    for status, *words in (("403", "path=/provenance/stats", "key=spark"), ("401", "path=/api/v1/lineage")):
        line = next(line for line in log.splitlines() if f"status={status}" in line)
        for word in ("warning refused access", "client=127.0.0.1:", *words):
            assert word in line


@pytest.mark.parametrize("without_keys", [False, True])
def test_revoking_the_last_key_opens_nothing(inside: Open, journal: Journal, *, without_keys: bool) -> None:
    key = Keys(journal).add("spark", [Role.ADMIN])
    collector = inside(without_keys=without_keys)
    assert collector.post("/api/v1/lineage", event(), bearer(key)).status == 201
    assert Keys(journal).revoke("spark")
    collector.look_at_keys()
    assert collector.post("/api/v1/lineage", event(), bearer(key)).status == 401
    assert collector.post("/api/v1/lineage", event()).status == 401
    assert collector.get("/health/live").status == 200
    other = Keys(journal).add("spark", [Role.EMIT])
    collector.look_at_keys()
    assert collector.post("/api/v1/lineage", event(), bearer(other)).status == 201


def test_a_key_closes_a_collector_that_runs_for_good_and_only_its_user_opens_the_next(
    inside: Open, journal: Journal
) -> None:
    collector = inside()
    assert collector.get("/metrics").status == 200
    Keys(journal).add("spark", [Role.ADMIN])
    collector.look_at_keys()
    assert collector.get("/metrics").status == 401
    assert Keys(journal).revoke("spark")
    collector.look_at_keys()
    assert collector.get("/metrics").status == 401
    reply = inside().post("/api/v1/lineage", event())
    assert (reply.status, "waybill keys add" in reply.json["detail"]) == (401, True)
    assert inside(without_keys=True).post("/api/v1/lineage", event()).status == 201


def test_other_machines_are_let_in_with_keys_or_if_told_so_only(start: Start, home: Path) -> None:
    settings = Settings.load({"home": home, "listen": "0.0.0.0:0", "runner": "none"}, env={})
    with pytest.raises(SettingsError, match="waybill keys add"):
        serve(settings)
    collector = start("--runner", "none", "--listen", "0.0.0.0:0", "--without-keys")
    assert collector.post("/api/v1/lineage", event()).status == 201
    port = collector.url.rpartition(":")[2]
    assert linked_to(collector) == f"http://{socket.gethostname()}:{port}", "users cannot reach 0.0.0.0"


def test_with_allowed_hosts_no_other_name_is_answered(inside: Open) -> None:
    allowed = ("Collector", "lineage.example.com")
    collector = inside(loopback=False, without_keys=True, allowed_hosts=allowed)
    statuses = {
        host: collector.ask("GET", "/api/v1/records", headers={"Host": host}).status
        for host in ("localhost:8090", "127.0.0.1", "collector:80", "LINEAGE.example.com", "evil.example", "")
    }
    assert [host for host, status in statuses.items() if status != 200] == ["evil.example", ""]
    reply = collector.ask("GET", "/api/v1/records", headers={"Host": "evil.example"})
    assert (reply.status, "collector, lineage.example.com" in reply.json["detail"]) == (403, True)


OWN_NAMES = ("localhost", "LOCALHOST:1", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:80")
NO_NAMES = (
    *("evil.example@127.0.0.1", "evil.example:80@localhost", "localhost/evil.example"),
    *("127.0.0.1?evil.example", "127.0.0.1#evil.example", "127.0.0.1 evil.example"),
    *("[::1]evil.example", "127.0.0.1:80:80"),
)
POD = "Host: 10.244.0.5:8090\r\n"
HEADS = [
    *((f"GET /where HTTP/1.1\r\nHost: {host}\r\n", {400, 403}) for host in NO_NAMES),
    *((f"GET /health/live HTTP/1.1\r\nHost: {host}\r\n", {200}) for host in OWN_NAMES),
    *((f"GET http://{host}/health/live HTTP/1.1\r\nHost: {host}\r\n", {200}) for host in OWN_NAMES),
    *(
        (f"GET /health/live HTTP/1.1\r\nHost: {one}\r\nHost: {other}\r\n", {400})
        for one, other in (("localhost", "evil.example"), ("evil.example", "localhost"), ("localhost",) * 2)
    ),
    ("GET http://localhost/health/live HTTP/1.1\r\nHost: evil.example\r\n", {400, 403}),
    ("GET http://evil.example/health/live HTTP/1.1\r\nHost: localhost\r\n", {400, 403}),
    # Probes and scrapers name the address of a pod, or none.
    *((f"GET {path} HTTP/1.1\r\n{POD}", {200}) for path in ("/health/live", "/health/ready", "/metrics")),
    *((f"GET {path} HTTP/1.0\r\n", {200}) for path in ("/health/live", "/health/ready", "/metrics")),
    ("GET /health HTTP/1.0\r\n", {403}),
    (f"POST /health/retry HTTP/1.1\r\n{POD}", {403}),
]


@pytest.mark.parametrize(("head", "statuses"), HEADS)
def test_one_host_of_this_machine_is_answered_and_any_to_a_probe(
    listening: Collector, head: str, statuses: set[int]
) -> None:
    assert status_of(listening, head) in statuses


def test_head_is_answered_as_get_is_without_the_body(listening: Collector) -> None:
    paths = [path for path, methods in description()["paths"].items() if "get" in methods]
    assert len(paths) > 20
    for path in ("/", "/docs", "/nowhere", *paths):
        got, head = (listening.ask(method, path) for method in ("GET", "HEAD"))
        assert (head.status, head.body) == (got.status, b""), path
        same = ["content-type"]
        if path != "/metrics":
            same += ["content-length", "allow", "location"]
        assert [head.headers.get(name) for name in same] == [got.headers.get(name) for name in same], path
    assert listening.ask("HEAD", "/api/v1/lineage").status == 405


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


def test_metrics_count_what_was_taken_and_refused(inside: Open) -> None:
    collector = inside()
    for body, status in ((event(), 201), (event(), 201), (b"{", 400)):
        assert collector.post("/api/v1/lineage", body).status == status
    assert collector.get("/nowhere").status == 404
    reply = collector.get("/metrics")
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


def test_metrics_say_what_became_of_a_backends_events(inside: Open, journal: Journal) -> None:
    collector = inside()
    figures = Counters(delivered=7, failed=2, refused=1, coalesced=900, summaries=3)
    journal.commit("marquez", cursor=0, put={"figures": msgspec.json.encode(figures)})
    said = b'{"problem":"it does not let us in; correct marquez_api_key","to_correct":"marquez_api_key"}'
    journal.commit("runner", put={"marquez": said})
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


def test_the_description_names_every_path_and_method(guarded: Inside) -> None:
    described = guarded.get("/openapi.json").json
    assert described == json.loads(json.dumps(description()))
    known = set(re.findall(r"/[\w/.{}-]+", guarded.get("/nowhere").json["detail"]))
    assert set(described["paths"]) == known
    for path, methods in described["paths"].items():
        allowed = sorted([*methods, "head"] if "get" in methods else methods)
        assert guarded.ask("DELETE", path).headers["allow"].lower() == ", ".join(allowed)
