"""The application: which door answers what, and what becomes of anything that goes wrong behind one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]

from waybill.collector.exchange import Answer, Door, Request
from waybill.collector.problem import PROBLEM_JSON, Problem

if TYPE_CHECKING:
    from granian.rsgi import Scope

    from waybill.collector.bodies import Bodies
    from waybill.collector.exchange import Exchange
    from waybill.collector.guard import Guard

log = logging.getLogger("waybill.collector")

Routes = Mapping[str, Mapping[str, Door]]
"""By path and method."""


class Application:
    """Answers requests; an RSGI application.

    Args:
        routes: the doors.
        bodies: what lets go of a request's memory when it is over.
        guard: who may come in.
    """

    def __init__(self, routes: Routes, bodies: Bodies, guard: Guard) -> None:
        self._routes: Final = routes
        self._bodies = bodies
        self._guard = guard

    async def __rsgi__(self, scope: Scope, proto: Exchange) -> None:
        """Answer one request."""
        request = Request(scope, proto)
        try:
            answer = await self._answer(request)
            proto.response_bytes(answer.status, answer.headers, answer.body)
        except ProtocolClosed:
            log.debug("a client went away before it was answered")
        finally:
            self._bodies.release(request)

    async def _answer(self, request: Request) -> Answer:
        try:
            door = self._door(request)
            self._guard.check(request)
            return await door(request)
        except Problem as problem:
            return _said(problem)
        except ProtocolClosed:
            raise
        except Exception:
            log.exception("a request failed")
            return _said(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the server's log says what went wrong"))

    def _door(self, request: Request) -> Door:
        path, method = request.scope.path, request.scope.method
        doors = self._routes.get(path)
        if doors is None:
            detail = f"there is no such path here; known are {', '.join(self._routes)}"
            raise Problem(HTTPStatus.NOT_FOUND, detail, close=method != "GET")
        door = doors.get(method)
        if door is None:
            allowed = ", ".join(doors)
            detail = f"{method[:20]} is not for this path; use {allowed}"
            headers = [("allow", allowed)]
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers=headers, close=True)
        return door


def _said(problem: Problem) -> Answer:
    headers = [("content-type", PROBLEM_JSON), *problem.headers]
    return Answer(problem.status, headers, problem.body())
