"""One request and its response, as the endpoints see them; a problem is a response too (RFC 9457)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import quote

import msgspec

if TYPE_CHECKING:
    from granian.rsgi import Scope

    from waybill.transport.errors import RootError

HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
PROBLEM_JSON: Final = "application/problem+json"

RETRY_AFTER_S: Final = 2
"""How long a sender is told to wait before it retries."""


_IN_URLS: Final = ":/%#?=@[]!$&'()*+,;"
"""What stands for itself in an address, beside letters and digits."""


class Exchange(Protocol):
    """RSGI's interface for reading a request's body and answering it."""

    async def __call__(self) -> bytes:
        """The whole body."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body in parts."""

    async def client_disconnect(self) -> None:
        """Wait until the client goes away."""

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Answer."""

    def response_stream(self, status: int, headers: list[tuple[str, str]]) -> Stream:
        """Begin to answer."""


class Stream(Protocol):
    """RSGI's interface for the parts of an answer."""

    async def send_bytes(self, data: bytes) -> None:
        """Send a part, once the client has taken most of those before."""


class Request:
    """A request whose body has not been read."""

    __slots__ = (
        "_headers",
        "client",
        "exchange",
        "has_turn",
        "held_bytes",
        "is_arriving",
        "key",
        "method",
        "name",
        "own_path",
        "path",
        "scope",
    )

    def __init__(self, scope: Scope, exchange: Exchange) -> None:
        self.scope = scope
        self.exchange = exchange
        # granian creates both again each time that they are read.
        self._headers = scope.headers
        self.client = scope.client
        """Address and port of its sender."""
        self.own_path = scope.path
        """The path that it asks for, as the collector has it."""
        self.path = self.method = "other"
        """Path and method of the endpoint that answers it. Unknown ones are counted as one, because each
        would stay a metric for ever.
        """
        self.name = ""
        """What stands for the name in the path of its endpoint."""
        self.key = ""
        """The name of the key that came with it; empty without one."""
        self.held_bytes = 0
        """Its body's share of the memory for all bodies."""
        self.has_turn = False
        """Whether its body is the large one being processed."""
        self.is_arriving = False
        """Whether its client has to send more of the body."""

    @property
    def query(self) -> str:
        """Its query string."""
        return str(self.scope.query_string)

    def header(self, name: str) -> str:
        """A header by its name in lower case; empty if there is none."""
        return str(self._headers.get(name) or "")

    def all_of(self, name: str) -> list[str]:
        """The values of each header of this name, which is in lower case."""
        return list(self._headers.get_all(name))  # type: ignore[attr-defined] # not in its stub

    def hosts(self) -> list[str]:
        """Each Host header, and the host in the address if it has another one."""
        found = self.all_of("host")
        named = self.scope.authority
        return found if not named or found == [named] else [named, *found]

    async def wait_until_gone(self) -> None:
        """Wait until its client goes away; its body must have been read."""
        await self.exchange.client_disconnect()

    @property
    def is_json(self) -> bool:
        """Whether its header says that its body is JSON."""
        return self.header("content-type").partition(";")[0].strip().lower() == JSON


class Answer(NamedTuple):
    """The response to a request; if it has parts, these are its body."""

    status: HTTPStatus
    headers: Sequence[tuple[str, str]]
    body: bytes = b""
    parts: AsyncIterator[bytes] | None = None

    def send(self, request: Request) -> None:
        """Send an answer without parts to who asked."""
        request.exchange.response_bytes(self.status, list(self.headers), self.body)

    async def send_parts(self, request: Request) -> None:
        """Send an answer that has parts to who asked.

        Raises:
            ProtocolClosed: the client has gone away.
        """
        stream = request.exchange.response_stream(self.status, list(self.headers))
        if self.parts is None or request.scope.method == "HEAD":
            return  # granian leaves out a body, and takes no parts of one
        async for part in self.parts:
            await stream.send_bytes(part)


def json_answer(
    value: object, *, status: HTTPStatus = HTTPStatus.OK, headers: Sequence[tuple[str, str]] = ()
) -> Answer:
    """Answer with a value as JSON."""
    return Answer(status, [("content-type", JSON), *headers], msgspec.json.encode(value))


def redirect_to(url: str, headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """Lead a browser to another address, which it gets with GET."""
    return Answer(HTTPStatus.SEE_OTHER, [("location", quote(url, safe=_IN_URLS)), *headers])


class UnknownName(msgspec.Struct, frozen=True):
    """A name in a question that no record has: its kind, the name, and names that exist."""

    what: str
    name: str
    nearest: tuple[str, ...]


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of a problem (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[str, ...] = ()
    unknown: UnknownName | None = None


class Problem(Exception):  # noqa: N818 - an answer, not an error of ours
    """The request gets this response instead.

    Args:
        detail: the problem and what to do, in one sentence.
        errors: every reason, if there are several; Marquez has the same list.
        close: whether the connection cannot be reused, because part of the body was not read.
        reason: the reason for the log, which contains no part of a body; by default that of the status.
        key: the name of the key that came with the request, for the log.
        unknown: the name that no record has, if that is the problem.
    """

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        errors: Sequence[str] = (),
        headers: Sequence[tuple[str, str]] = (),
        close: bool = False,
        reason: str = "",
        key: str = "",
        unknown: UnknownName | None = None,
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)
        self.reason = reason or status.phrase
        self.key = key
        self.unknown = unknown
        self.headers = tuple(headers) + ((("connection", "close"),) if close else ())

    def answer(self) -> Answer:
        """The problem as JSON; its type is ``about:blank``, so its title is that of the status."""
        told = ProblemDetails(
            "about:blank", self.status.phrase, self.status.value, self.detail, self.errors, self.unknown
        )
        return Answer(self.status, [("content-type", PROBLEM_JSON), *self.headers], msgspec.json.encode(told))


def busy(detail: str, *, close: bool = False) -> Problem:
    """Refuse a request that may succeed later."""
    headers = [("retry-after", str(RETRY_AFTER_S))]
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=headers, close=close, reason=detail)


def failed() -> Problem:
    """Say that the collector has failed; the log says how."""
    return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "see the server's log for the cause")


def wrong_root(error: RootError) -> Problem:
    """Refuse to answer from a folder that is not the root."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), reason="the root is not the home's")
