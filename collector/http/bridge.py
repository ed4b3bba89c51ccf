"""The bridge from granian's interface, RSGI, to ASGI, which Starlette speaks.

granian speaks ASGI too. But then each request costs 32 µs more, even those that take events, and a server has
one interface. So only what is asked crosses this bridge.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from .bodies import BODY_TIMEOUT_S
from .exchange import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from .endpoint import WebRequest
    from .exchange import Request, Stream

FORM_BYTES_MAX: Final = 64 * 2**10
"""The maximum size of the body of a request that takes no events."""

_REQUEST: Final = "waybill.request"

_Message = MutableMapping[str, Any]


async def answer_through(app: ASGIApp, request: Request) -> int:
    """Let an ASGI application answer a request; returns the status.

    Args:
        app: the application.
        request: the request; its body may have `FORM_BYTES_MAX`.

    Raises:
        Problem: the body is too large or too slow, and nothing was answered yet.
        ProtocolClosed: the client has gone away.
    """
    call = _Call(request)
    await app(_scope_of(request), call.receive, call.send)
    return call.status


def request_of(web: WebRequest) -> Request:
    """The request that crossed the bridge."""
    request: Request = web.scope[_REQUEST]
    return request


class _Call:
    """One request through ASGI."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._is_read = False
        self._headers: list[tuple[str, str]] = []
        self._stream: Stream | None = None
        self.status = 0

    async def receive(self) -> _Message:
        """The whole body; after it, the end of the connection."""
        if self._is_read:
            await self._request.exchange.client_disconnect()
            return {"type": "http.disconnect"}
        self._is_read = True
        return {"type": "http.request", "body": await self._body(), "more_body": False}

    async def _body(self) -> bytes:
        body = bytearray()
        self._request.is_arriving = True
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for part in self._request.exchange:
                    body += part
                    if len(body) > FORM_BYTES_MAX:
                        detail = f"the body is larger than {FORM_BYTES_MAX:,} bytes; send less"
                        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, close=True)
        except TimeoutError:
            detail = f"the body did not arrive within {BODY_TIMEOUT_S:g} s; send it again"
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail, close=True) from None
        finally:
            self._request.is_arriving = False
        return bytes(body)

    async def send(self, message: _Message) -> None:
        """Answer, at once if there is one part only."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._headers = [
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]
            ]
            return
        body, has_more = message.get("body", b""), message.get("more_body", False)
        if self._stream is None and not has_more:
            self._request.exchange.response_bytes(self.status, self._headers, body)
            return
        if self._stream is None:
            self._stream = self._request.exchange.response_stream(self.status, self._headers)
        if body:
            await self._stream.send_bytes(body)


def _scope_of(request: Request) -> _Message:
    scope = request.scope
    host, _, port = request.client.rpartition(":")
    server, _, server_port = scope.server.rpartition(":")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": scope.http_version,
        "method": scope.method,
        "scheme": scope.scheme,
        "path": request.own_path,
        "raw_path": quote(request.own_path).encode(),
        "query_string": scope.query_string.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in request.headers()],
        "client": (host, int(port)) if port.isdigit() else None,
        "server": (server, int(server_port)) if server_port.isdigit() else None,
        "state": {},
        # With an application, Starlette raises an error for a method that is not accepted.
        "app": _REQUEST,
        _REQUEST: request,
    }
