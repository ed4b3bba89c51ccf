"""Requests as an endpoint gets them, for tests that call one without a server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from waybill.collector import http


class Patient:
    """The exchange of a client that waits for its answer."""

    async def client_disconnect(self) -> None:
        await asyncio.Event().wait()


def request_for(path: str, query: str = "", **path_params: str) -> Request:
    """A request without headers."""
    scope: Any = SimpleNamespace(headers={}, client="127.0.0.1:1", path=path)
    exchange: Any = Patient()
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [],
            "server": ("localhost", 80),
            "path_params": path_params,
            "waybill.request": http.Request(scope, exchange),
        }
    )
