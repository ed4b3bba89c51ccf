"""A look at the backend for `waybill status` and `waybill doctor`: one sentence when something is wrong."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.marquez import probe

if TYPE_CHECKING:
    from contract_server import ContractServer


@pytest.mark.parametrize("path", ["", "/", "/api/v1/lineage"])
def test_a_marquez_that_works_answers_with_its_latency(marquez: ContractServer, path: str) -> None:
    marquez.api_key = "right"
    result = probe(marquez.url + path, "right")
    assert (result.url, result.status, result.problem) == (marquez.url, 200, None)
    assert 0 < result.latency_ms < 3000
    assert marquez.received == []


def test_nobody_there_is_said(marquez: ContractServer) -> None:
    marquez.refuse()
    result = probe(marquez.url)
    assert result.status is None
    assert result.problem is not None
    assert result.problem.startswith(f"{marquez.url} does not answer: Connection refused, and events wait")
    assert result.problem.endswith("or correct marquez_url: write `marquez_url: URL` into waybill.yaml")
    asked = probe(marquez.url, home=Path("/my home"))
    assert asked.problem is not None
    assert asked.problem.endswith("`waybill settings apply --home '/my home' --marquez-url URL`")


def test_a_backend_that_hangs_is_given_up_in_time(marquez: ContractServer) -> None:
    marquez.fault = "hang"
    started_s = time.monotonic()
    result = probe(marquez.url, timeout_s=0.2)
    assert time.monotonic() - started_s < 3
    assert result.problem is not None
    assert "no answer within 0.2 s" in result.problem


@pytest.mark.parametrize(
    ("fault", "given", "path", "status", "says"),
    [
        ("401", "wrong-key", "", 401, "refuses the key that is given, it answers 401 ("),
        ("401", "wrong-key", "", 401, "; correct marquez_api_key: write `marquez_api_key: KEY`"),
        ("401", None, "", 401, "wants a key and none is given, it answers 401 ("),
        ("401", None, "", 401, "; set marquez_api_key: write `marquez_api_key: KEY`"),
        ("page", None, "", 200, "not as Marquez's API does"),
        (None, None, "/elsewhere", 404, "correct marquez_url to where its API is: write `marquez_url: URL`"),
        ("500", None, "", 500, "answers 500 ("),
    ],
)
def test_what_is_no_marquez_or_is_in_trouble_or_wants_a_key_is_said_without_showing_that(
    marquez: ContractServer, fault: str | None, given: str | None, path: str, status: int, says: str
) -> None:
    marquez.fault = fault
    result = probe(marquez.url + path, given)
    assert result.problem is not None
    assert (result.status, says in result.problem, "wrong-key" in result.problem) == (status, True, False)


def test_a_web_page_of_a_proxy_is_not_quoted() -> None:
    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(502)
            self.end_headers()
            self.wfile.write(b"\n<!DOCTYPE html><html><title>502</title><body>secrets of nginx</body></html>")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        result = probe(f"http://127.0.0.1:{server.server_address[1]}")
        server.shutdown()
    assert result.problem is not None
    assert "answers 502 (a web page: 502), and events wait" in result.problem


def test_secrets_in_the_address_are_not_shown(marquez: ContractServer) -> None:
    result = probe(marquez.url.replace("://", "://user:hush@"))
    assert result.problem is None
    assert result.url == marquez.url
