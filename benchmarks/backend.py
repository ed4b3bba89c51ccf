"""The backend that the benchmarks deliver to: on loopback, in its own process."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import time
from typing import Final, Self

STATES: Final = ("answering", "refusing", "hanging", "failing")

_HANGS_S: Final = 3_600.0


class StandIn:
    """A server that answers 201 or 500, hangs, or does not listen.

    Args:
        state: one of `STATES`.
        answer_s: how long an answer takes, in seconds.
        port: the port to listen on; 0 for any free port.
    """

    def __init__(self, state: str, *, answer_s: float = 0.0, port: int = 0) -> None:
        self._state = state
        self._answer_s = answer_s
        self._port = port
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self._state == "refusing":
            with socket.create_server(("127.0.0.1", self._port)) as reserved:
                self.url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
            return self
        call = f"serve({self._state!r}, {self._answer_s!r}, {self._port!r})"
        command = [sys.executable, "-c", f"from benchmarks.backend import serve; {call}"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout
        self.url = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()


def serve(state: str, answer_s: float, port: int) -> None:
    """Serve as the backend until killed; the first line printed is the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if state == "hanging" or answer_s:
                time.sleep(_HANGS_S if state == "hanging" else answer_s)
            self.send_response(201 if state == "answering" else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Print nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
