"""One request and its answer, as the endpoints see them; a problem is an answer too (RFC 9457)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from granian.rsgi import Scope

    from waybill.transport.errors import RootError

JSON: Final = "application/json"
PROBLEM_JSON: Final = "application/problem+json"

RETRY_AFTER_S: Final = 2
"""How long a sender is asked to wait before it tries again."""


class Exchange(Protocol):
    """What RSGI gives to read a request's body and to answer it."""

    async def __call__(self) -> bytes:
        """The whole body."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body in parts."""

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Answer."""


class Request:
    """A request whose body has not been read."""

    __slots__ = ("_headers", "client", "exchange", "has_turn", "held_bytes", "is_arriving", "scope")

    def __init__(self, scope: Scope, exchange: Exchange) -> None:
        self.scope = scope
        self.exchange = exchange
        # granian makes both anew each time that they are asked for.
        self._headers = scope.headers
        self.client = scope.client
        """Address and port of its sender."""
        self.held_bytes = 0
        """What its body takes of the memory that all bodies share."""
        self.has_turn = False
        """Whether its body is the large one that is being looked into."""
        self.is_arriving = False
        """Whether its client has to go on with the body."""

    def header(self, name: str) -> str:
        """A header by its name in lower case; empty where there is none."""
        return str(self._headers.get(name) or "")

    @property
    def is_json(self) -> bool:
        """Whether its header says that its body is JSON."""
        return self.header("content-type").partition(";")[0].strip().lower() == JSON


class Answer(NamedTuple):
    """What a request is answered with."""

    status: HTTPStatus
    headers: list[tuple[str, str]]
    body: bytes = b""


Handler = Callable[[Request], Awaitable[Answer]]
"""Answers the requests of one path and method."""


def json_answer(
    value: object, *, status: HTTPStatus = HTTPStatus.OK, headers: Sequence[tuple[str, str]] = ()
) -> Answer:
    """Answer with a value as JSON."""
    return Answer(status, [("content-type", JSON), *headers], msgspec.json.encode(value))


class Problem(Exception):  # noqa: N818 - an answer, not an error of ours
    """The request is answered with this instead.

    Args:
        detail: what is wrong and what to do, in one sentence.
        errors: every single reason, where there are several; Marquez has the same list.
        close: whether the connection is useless from here on, because some of the body was not read.
        reason: why, for the log, which has no part of a body; that of the status if there is none.
        key: the name of the key that came with the request, for the log.
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
    ) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.errors = tuple(errors)
        self.reason = reason or status.phrase
        self.key = key
        self.headers = tuple(headers) + ((("connection", "close"),) if close else ())

    def answer(self) -> Answer:
        """The problem as JSON; its type is ``about:blank``, so its title is that of the status."""
        body: dict[str, object] = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = self.errors
        return Answer(self.status, [("content-type", PROBLEM_JSON), *self.headers], msgspec.json.encode(body))


def busy(detail: str) -> Problem:
    """Refuse what may succeed later."""
    headers = [("retry-after", str(RETRY_AFTER_S))]
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=headers, reason=detail)


def wrong_root(error: RootError) -> Problem:
    """Refuse to answer from a folder that is not the root."""
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), reason="the root is not the home's")
