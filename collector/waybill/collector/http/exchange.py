"""One request and its answer, as the doors of the collector see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

if TYPE_CHECKING:
    from granian.rsgi import Scope

JSON: Final = "application/json"


class Exchange(Protocol):
    """What RSGI gives to read a request's body and to answer it."""

    async def __call__(self) -> bytes:
        """The whole body."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        """The body in parts."""

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Answer."""


class Request:
    """A request whose body has not been read.

    Args:
        scope: the server's view of it.
        proto: where its body comes from.
    """

    __slots__ = ("has_turn", "held_bytes", "proto", "scope")

    def __init__(self, scope: Scope, proto: Exchange) -> None:
        self.scope = scope
        self.proto = proto
        self.held_bytes = 0
        """What its body takes of the memory that all bodies share."""
        self.has_turn = False
        """Whether its body is the large one that is looked into."""

    def header(self, name: str) -> str:
        """A header by its name in lower case; empty where there is none."""
        return str(self.scope.headers.get(name) or "")


class Answer(NamedTuple):
    """What a request is answered with."""

    status: HTTPStatus
    headers: list[tuple[str, str]]
    body: bytes = b""


Door = Callable[[Request], Awaitable[Answer]]
"""What answers the requests of one path and method."""


def json_answer(
    value: object, *, status: HTTPStatus = HTTPStatus.OK, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    """A value as JSON."""
    return Answer(status, [("content-type", JSON), *headers], msgspec.json.encode(value))
