"""Requests as an endpoint gets them, for tests that call one without a server."""

from __future__ import annotations

from starlette.requests import Request


def request_for(path: str, query: str = "", key: str = "", **path_params: str) -> Request:
    """A request without headers."""
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [],
            "server": ("localhost", 80),
            "path_params": path_params,
            "state": {"key": key},
        }
    )
