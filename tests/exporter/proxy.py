"""A proxy between an export and its object store that can fail as networks and stores do."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class Fault(StrEnum):
    """The outcome of one request."""

    BUSY = "503"
    STALL = "no answer, until the client gives up"
    CUT = "the connection ends in the middle of the body"
    LOST = "it is done, and the connection ends before the answer"


class Proxy(ThreadingHTTPServer):
    """Passes requests on, except puts that a plan names.

    Args:
        address: host and port of what it stands before.
        plan: given how many puts came before, what becomes of this one; None: nothing.

    Attributes:
        plan_gets: what becomes of the next get; None: nothing.
    """

    daemon_threads = True

    def __init__(self, address: str, plan: Callable[[int], Fault | None] = lambda _: None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = address
        self.plan = plan
        self.plan_gets: Callable[[], Fault | None] = lambda: None
        self.puts = 0
        self.stalled = threading.Event()
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed or give up are part of the test."""

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_PUT(self) -> None:
        with self.server.lock:
            fault = self.server.plan(self.server.puts)
            self.server.puts += 1
        size = int(self.headers["Content-Length"])
        if fault is Fault.CUT:
            self.rfile.read(size // 2)
            self._end()
            return
        body = self.rfile.read(size)
        if fault is Fault.BUSY:
            self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        elif fault is Fault.STALL:
            self.server.stalled.set()
            self.connection.recv(1)
            self._end()
        else:
            answer = self._passed(body)
            if fault is Fault.LOST:
                self._end()
            else:
                self._answer(*answer)

    def do_GET(self) -> None:
        with self.server.lock:
            fault = self.server.plan_gets()
        if fault is Fault.BUSY:
            self._answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if fault is Fault.STALL:
            self.server.stalled.set()
            self.connection.recv(1)
            self._end()
            return
        status, headers, content = self._passed(None)
        if fault is not None:
            headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
            headers["Content-Length"] = str(len(content))
            content = content[: len(content) // 2]
            self._end()
        self._answer(status, headers, content)

    def do_POST(self) -> None:
        self._answer(*self._passed(self.rfile.read(int(self.headers["Content-Length"]))))

    def do_HEAD(self) -> None:
        self._answer(*self._passed(None))

    def _passed(self, body: bytes | None) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.behind, timeout=30)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            headers = {
                name: value
                for name, value in answer.getheaders()
                if name.lower() not in {"connection", "transfer-encoding", "date", "server"}
            }
        finally:
            connection.close()
        return answer.status, headers, content

    def _answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "content-length" not in {name.lower() for name in headers}:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _end(self) -> None:
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Log nothing."""
