"""A loopback HTTP endpoint for OpenLineage events; uses only the standard library.

For producers that can only speak HTTP, such as the Spark listener, on the machine with the journal. An event
is answered with 201 once it is kept, whatever the state of any backend. All users of the machine reach its
port, so its path begins with a secret: every client takes a path with its URL, and not every one takes a key.
Other hosts cannot reach it, and neither can a page in a browser.
"""

from __future__ import annotations

import gzip
import hmac
import io
import logging
import secrets
import socket
import sys
import threading
import zlib
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Final
from urllib.parse import urlsplit

import msgspec

from waybill.facets.context import LINEAGE_PATH

from .admission import MAX_BODY_BYTES
from .clock import SYSTEM_CLOCK
from .errors import AdmissionError, JournalError
from .loopback import leads_here

log = logging.getLogger("waybill.receiver")

_HOST: Final = "127.0.0.1"
_SECRET_BYTES: Final = 24
_WHERE: Final = f"post events to the URL that your program was given, and {LINEAGE_PATH}"
_BODY_TIMEOUT_S: Final = 60.0
_LINE_BYTES_MAX: Final = 1024
_LENGTH_DIGITS_MAX: Final = 18
_DRAIN_S: Final = 1.0
_POLL_S: Final = 0.1
_RETRY_AFTER_S: Final = 2


class Receiver:
    """Accepts OpenLineage events over HTTP, at a free port of 127.0.0.1; answers after `start`.

    Args:
        keep: admits and keeps one event, as `Home.emit` does.
        on_event: called with each body after it is kept and before the sender is answered; its exceptions are
            logged only.
    """

    def __init__(
        self, keep: Callable[[bytes], object], on_event: Callable[[bytes], None] | None = None
    ) -> None:
        self._keep = keep
        self._on_event = on_event
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="waybill-receiver", daemon=True
        )

    @property
    def url(self) -> str:
        """The URL for OpenLineage clients, which add `LINEAGE_PATH`; only its sender may know it."""
        return f"http://{_HOST}:{self._server.server_address[1]}/{self._server.secret}/"

    def start(self) -> None:
        """Start to answer requests, in threads."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering requests."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def receive(self, body: bytes) -> None:
        """Keep one event, or raise an `AdmissionError` or a `JournalError`."""
        self._keep(body)
        if self._on_event is not None:
            try:
                self._on_event(body)
            except Exception:
                log.exception("an event was kept, but its on_event callback failed")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.secret = secrets.token_urlsafe(_SECRET_BYTES)
        super().__init__((_HOST, 0), _Handler)

    def server_bind(self) -> None:
        # HTTPServer looks up its full name in DNS, which takes seconds if DNS is broken.
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("the connection of %s broke off (%s): %r", client_address, request, sys.exception())


class _Refusal(Exception):  # noqa: N818 - an answer, not an error of ours
    """The status and message to answer a request with.

    If part of the body is `unread`, the connection cannot be used again.
    """

    def __init__(self, status: HTTPStatus, what: str, *, unread: bool = True) -> None:
        super().__init__(what)
        self.status = status
        self.unread = unread


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        try:
            self._check_head()
            self.server.receiver.receive(self._event())
        except _Refusal as refusal:
            self.close_connection = self.close_connection or refusal.unread
            self._answer(refusal.status, str(refusal))
            if refusal.unread:
                self._hang_up()
        except AdmissionError as error:
            self._answer(HTTPStatus(error.reason.http_status), str(error))
        except JournalError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        else:
            self._answer(HTTPStatus.CREATED)

    def do_GET(self) -> None:
        # The body is not read, and would be taken for the next request.
        self.close_connection = True
        what = f"there is nothing to read here; {_WHERE}"
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED if self._is_known() else HTTPStatus.NOT_FOUND, what)

    do_HEAD = do_GET  # noqa: N815 - http.server's name

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that http.server refuses in the same form as other errors."""
        self.close_connection = True
        self._answer(HTTPStatus(code), message or explain or HTTPStatus(code).phrase)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        log.debug(format, *args)

    def _is_known(self) -> bool:
        """Whether the path is that of the endpoint, whose secret only its sender knows."""
        secret, _, rest = urlsplit(self.path).path.lstrip("/").partition("/")
        is_sender = hmac.compare_digest(secret.encode(), self.server.secret.encode())
        return is_sender and rest.strip("/") in {"", LINEAGE_PATH.strip("/")}

    def _check_head(self) -> None:
        if not self._is_known():
            raise _Refusal(HTTPStatus.NOT_FOUND, f"there is nothing at this path; {_WHERE}")
        # A page in a browser on this machine must not send events. It cannot send JSON to another origin
        # without a preflight request, which is never granted here. If the page's own name resolves to this
        # machine, the Host header shows that name.
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1 or not leads_here(hosts[0]):
            raise _Refusal(HTTPStatus.FORBIDDEN, "the Host header is not a loopback address; use one")
        if self.headers.get_content_type() != "application/json":
            what = "the content type is not application/json; send one OpenLineage event as JSON"
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, what)

    def _event(self) -> bytes:
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in {"identity", "gzip"}:
            what = f"the content encoding {encoding} is not supported; send gzip or none"
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, what)
        self.connection.settimeout(_BODY_TIMEOUT_S)
        try:
            body = self._body()
        except TimeoutError:
            raise _Refusal(
                HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time; send it again"
            ) from None
        finally:
            # Two events of a pipeline may be hours apart, and a listener whose connection was closed loses
            # the event.
            self.connection.settimeout(None)
        if encoding == "gzip":
            try:
                body = gzip.GzipFile(fileobj=io.BytesIO(body)).read(MAX_BODY_BYTES + 1)
            except (OSError, EOFError, zlib.error) as error:
                what = f"the body is not valid gzip ({error}); send it again"
                raise _Refusal(HTTPStatus.BAD_REQUEST, what, unread=False) from None
            if len(body) > MAX_BODY_BYTES:
                raise _too_large(unread=False)
        return body

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").strip().lower() == "chunked":
            return self._chunks()
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) <= _LENGTH_DIGITS_MAX):
            what = "the Content-Length is missing or not a number; send it"
            raise _Refusal(HTTPStatus.LENGTH_REQUIRED, what)
        return self._exactly(int(length))

    def _chunks(self) -> bytes:
        """Read a chunked body, which the Spark listener sends when it compresses."""
        body = bytearray()
        while size := self._chunk_size():
            body += self._exactly(size, before=len(body))
            self.rfile.readline(_LINE_BYTES_MAX)
        while self.rfile.readline(_LINE_BYTES_MAX).strip():
            pass  # trailers
        return bytes(body)

    def _chunk_size(self) -> int:
        digits = self.rfile.readline(_LINE_BYTES_MAX).partition(b";")[0].strip()
        try:
            return int(digits, 16)
        except ValueError:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "a chunk has no size; send it again") from None

    def _exactly(self, size: int, *, before: int = 0) -> bytes:
        if not 0 <= size <= MAX_BODY_BYTES - before:
            raise _too_large()
        content = self.rfile.read(size)
        if len(content) < size:
            raise _Refusal(HTTPStatus.BAD_REQUEST, "the body is incomplete; send it again")
        return content

    def _answer(self, status: HTTPStatus, what: str | None = None) -> None:
        body = b"" if what is None else msgspec.json.encode({"errors": [what]})
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if body:
            self.send_header("Content-Type", "application/json")
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", str(_RETRY_AFTER_S))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _hang_up(self) -> None:
        """Give the sender time to read the answer: closing the connection at once could discard it."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(_DRAIN_S)
        deadline_s = SYSTEM_CLOCK.monotonic_s() + _DRAIN_S
        while SYSTEM_CLOCK.monotonic_s() < deadline_s and self.rfile.read1(io.DEFAULT_BUFFER_SIZE):
            pass


def _too_large(*, unread: bool = True) -> _Refusal:
    what = f"the event is larger than {MAX_BODY_BYTES:,} bytes; send smaller facets"
    return _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, what, unread=unread)
