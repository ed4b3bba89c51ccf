"""The file of objectives, and what it names: what is meant is read, and a mistake is told with its place."""

from __future__ import annotations

import socketserver
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, ClassVar

import pytest

from waybill.lineage.levels import LevelsFile, Plan, Sli, read_plan
from waybill.lineage.levels.declared import read_declared
from waybill.pipelines import YamlFileError
from waybill.transport import NotFoundError, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WINDOW = "{begins: 2026-12-05T22:00:00Z, ends: 2026-12-06T04:00:00Z, datasets: ['lake/*'], slis: [freshness]}"


def plan_of(settings: Settings, text: str) -> Plan:
    settings.home.mkdir(exist_ok=True)
    (settings.home / "slis.yaml").write_text(text)
    return read_plan(settings)


def test_without_a_file_the_defaults_are_promised(settings: Settings) -> None:
    assert read_plan(settings) == Plan(LevelsFile(), settings.home)
    promised = LevelsFile().objectives
    assert promised.of(Sli.FRESHNESS, "critical") == 3_600.0
    assert promised.of(Sli.FRESHNESS, "optional") is None
    assert promised.of(Sli.QUERY_LATENCY) == 0.5


def test_a_window_is_active_within_it_and_about_what_it_names(settings: Settings) -> None:
    file = plan_of(settings, f"maintenance: [{WINDOW}]\n").file
    (window,) = file.active_windows(window_ms := 1_796_510_000_000)
    assert window_ms == 1_796_510_000_000
    assert window.is_about(Sli.FRESHNESS, "lake/orders")
    assert not window.is_about(Sli.FRESHNESS, "sea/orders")
    assert not window.is_about(Sli.COVERAGE, "lake/orders")
    assert file.active_windows(1_796_600_000_000) == ()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "objectives: {freshnes: {critical: 1h}}\n",
            ":1: objectives.freshnes: there is no such field; did you mean freshness?",
        ),
        ("tiers:\n  - {datasets: a, tier: urgent}\n", ":2: tiers.0.tier: 'urgent' is not a possible value"),
        ("\nobjectives: {error_rate: -1}\n", ":2: objectives.error_rate: "),
        ("objectives: {unauthorised_access: -1}\n", ":1: objectives.unauthorised_access: "),
        ("objectives: {ingestion_lag: soon}\n", ":1: objectives.ingestion_lag: give a duration such as"),
        ("required: [owner, colour]\n", ":1: required.1: 'colour' is not a possible value"),
        ("inventory: {url: 'ftp://host'}\n", ":1: inventory.url: "),
        (
            "maintenance:\n  - {begins: 2026-12-05T22:00:00Z, ends: 2026-12-05T22:00:00Z}\n",
            ":2: maintenance.0.ends: it is not after",
        ),
        (
            "maintenance:\n  - {begins: 2026-12-05T22:00:00, ends: 2026-12-05T23:00:00Z}\n",
            ":2: maintenance.0.begins: ",
        ),
        ("tiers: [\n", "it is not valid YAML"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_field(settings: Settings, text: str, says: str) -> None:
    with pytest.raises(YamlFileError) as raised:
        plan_of(settings, text)
    assert says in str(raised.value)
    assert str(raised.value).startswith(str(settings.home / "slis.yaml"))


def test_a_file_that_is_named_has_to_be_there(settings: Settings, tmp_path: Path) -> None:
    missing = settings.with_values({"slis": str(tmp_path / "other.yaml")}, "tests")
    with pytest.raises(NotFoundError, match="there is no file"):
        read_plan(missing)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("namespace,nme\nlake,a\n", "known.csv:1: the column name is missing"),
        ("namespace,name,tier\nlake,a,critical\nlake,b,urgent\n", "known.csv:3: tier: 'urgent' is no tier"),
        ("namespace,name\nlake,\n", "known.csv:2: name: it is empty"),
        ('namespace,name\nlake,"a\n', "known.csv:2: it is no CSV"),
        (None, "known.csv cannot be read: it is not there"),
    ],
)
def test_an_inventory_that_cannot_be_read_makes_coverage_unknown(
    settings: Settings, text: str | None, says: str
) -> None:
    plan = plan_of(settings, "inventory: {csv: [known.csv]}\nexpected: {csv: [known.csv]}\n")
    if text is not None:
        (settings.home / "known.csv").write_text(text)
    found = read_declared(plan)
    assert says in found.coverage_lack
    assert found.accuracy_lack


class Catalogue(BaseHTTPRequestHandler):
    """Answers each path otherwise; `/hangs` byte by byte, and for ever."""

    answers: ClassVar = {
        "/json": ("application/json", b'[{"namespace": "lake", "name": "a", "tier": "critical", "x": 1}]'),
        "/within": ("application/json", b'{"count": 1, "datasets": [{"namespace": "lake", "name": "a"}]}'),
        "/csv": ("text/csv; charset=utf-8", b"namespace,name,owner\nlake,a,ann\n"),
        "/bad": ("application/json", b'[{"namespace": "lake"}]'),
        "/page": ("text/html", b"<html>"),
    }
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        if self.headers.get("authorization") != "Bearer sesame":
            self.send_error(401)
            return
        kind, body = self.answers.get(self.path, ("application/json", b"["))
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body)
        while self.path == "/hangs":
            time.sleep(0.05)
            try:
                self.wfile.write(b" ")
            except OSError:
                return

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def catalogue() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Catalogue) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_catalogue_is_asked_within_a_time_limit(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with catalogue() as url:

        def ask(path: str) -> tuple[list[tuple[str, str]], str]:
            text = f"inventory: {{url: '{url}{path}', token_variable: TOKEN, timeout: 1s}}\n"
            found = read_declared(plan_of(settings, text))
            return [(one.namespace, one.name) for one in found.datasets], found.coverage_lack

        assert "the variable TOKEN with its token is not set" in ask("/json")[1]
        monkeypatch.setenv("TOKEN", "wrong")
        assert "answers 401; correct its address or its token" in ask("/json")[1]
        monkeypatch.setenv("TOKEN", "sesame")
        for path in ("/json", "/within", "/csv"):
            assert ask(path) == ([("lake", "a")], "")
        assert "name is missing" in ask("/bad")[1]
        assert "lists no datasets as JSON or CSV" in ask("/page")[1]
        began_s = time.monotonic()
        assert "does not answer within 1 s" in ask("/hangs")[1]
        assert time.monotonic() - began_s < 10
        assert "sesame" not in ask("/page")[1]
    assert "cannot be reached (ConnectionError)" in ask("/json")[1]
