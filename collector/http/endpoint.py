"""An endpoint: the path, the role that its key needs, and the function that answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..keys import Role
    from .exchange import Answer, Problem, Request


class Endpoint(NamedTuple):
    """One path and method.

    Attributes:
        path: as in OpenAPI: ``{name}`` at its end stands for the rest of a path, even over several lines.
        role: the role that a key needs; None: no key is needed.
        answer: answers a request; it may raise a `Problem`.
        method: the method; HEAD is answered as GET, without the body.
        show_problem: makes the response for a `Problem`, where JSON would not do.
        is_described: whether it is for programs although it has `show_problem`: OpenAPI describes it.
        any_host: whether any Host header will do: probes and scrapers name an address, or none.
    """

    path: str
    role: Role | None
    answer: Callable[[Request], Awaitable[Answer]]
    method: str = "GET"
    show_problem: Callable[[Request, Problem], Answer] | None = None
    is_described: bool = False
    any_host: bool = False
