"""An endpoint: the path, the role that its key needs, and the function that answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from .exchange import JSON

if TYPE_CHECKING:
    from ..keys import Role
    from .exchange import Problem


WebRequest = Request
"""Starlette's request: it crossed the bridge."""

WebResponse = Response


class Endpoint(NamedTuple):
    """One path and method, answered through Starlette.

    Attributes:
        path: as in OpenAPI: ``{name}`` stands for the rest of a path.
        role: the role that a key needs; None: no key is needed.
        answer: answers a request; the name of its key is in `request.state.key`, empty without one. It may
            raise a `Problem`.
        method: the method; HEAD is answered as GET, without the body.
        show_problem: makes the response for a `Problem`, where JSON would not do.
        is_described: whether it is for programs although it has `show_problem`: OpenAPI describes it.
        any_host: whether any Host header will do: probes and scrapers name an address, or none.
    """

    path: str
    role: Role | None
    answer: Callable[[WebRequest], Awaitable[WebResponse]]
    method: str = "GET"
    show_problem: Callable[[WebRequest, Problem], WebResponse] | None = None
    is_described: bool = False
    any_host: bool = False


def json_response(
    value: object, *, status: HTTPStatus = HTTPStatus.OK, headers: Sequence[tuple[str, str]] = ()
) -> WebResponse:
    """Answer with a value as JSON."""
    return WebResponse(msgspec.json.encode(value), status, dict(headers), JSON)
