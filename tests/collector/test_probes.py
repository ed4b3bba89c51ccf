"""Probes, scrapers and monitors: they ask with HEAD, and name the address of a pod as Host, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from served import status_of

from waybill.collector.openapi import description

if TYPE_CHECKING:
    from served import Collector


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics"])
def test_probes_are_answered_whatever_host_they_name(shared: Collector, path: str) -> None:
    assert status_of(shared, f"GET {path} HTTP/1.1\r\nHost: 10.244.0.5:8090\r\n") == 200
    assert status_of(shared, f"GET {path} HTTP/1.0\r\n") == 200
    assert status_of(shared, "GET /health HTTP/1.0\r\n") == 403
    assert status_of(shared, "POST /health/retry HTTP/1.1\r\nHost: 10.244.0.5\r\n") == 403


def test_head_is_answered_as_get_is_without_the_body(shared: Collector) -> None:
    paths = [path for path, methods in description()["paths"].items() if "get" in methods]
    assert len(paths) > 20
    for path in ("/", "/docs", "/nowhere", *paths):
        got, head = (shared.ask(method, path) for method in ("GET", "HEAD"))
        assert (head.status, head.body) == (got.status, b""), path
        same = (
            ("content-type", "content-length", "allow", "location")
            if path != "/metrics"
            else ("content-type",)
        )
        assert [head.headers.get(name) for name in same] == [got.headers.get(name) for name in same], path
    assert shared.ask("HEAD", "/api/v1/lineage").status == 405
