"""The application: which door answers what, and what becomes of anything that goes wrong behind one."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # the native module has no stub

from waybill.collector.http import PROBLEM_JSON, Answer, Problem, Request

if TYPE_CHECKING:
    from granian.rsgi import Scope

    from waybill.collector.http import Auth, Bodies, Exchange
    from waybill.collector.metrics import Metrics
    from waybill.collector.routes import Routes, Way

log = logging.getLogger("waybill.collector")


class Application:
    """Answers requests; an RSGI application.

    Args:
        routes: the doors.
        bodies: what lets go of a request's memory when it is over.
        guard: who may come in.
        metrics: where requests are counted.
    """

    def __init__(self, routes: Routes, bodies: Bodies, guard: Auth, metrics: Metrics) -> None:
        self._routes: Final = routes
        self._bodies = bodies
        self._guard = guard
        self._metrics = metrics

    async def __rsgi__(self, scope: Scope, proto: Exchange) -> None:
        """Answer one request."""
        began_s = time.perf_counter()
        request = Request(scope, proto)
        try:
            answer = await self._answer(request)
            proto.response_bytes(answer.status, answer.headers, answer.body)
            # A path that is none of ours could be anything, and each would be a figure for good.
            ways = self._routes.get(scope.path)
            path, method = (scope.path, scope.method) if ways and scope.method in ways else ("other", "other")
            self._metrics.answered(path, method, answer.status, time.perf_counter() - began_s)
        except ProtocolClosed:
            log.debug("a client went away before it was answered")
        finally:
            self._bodies.release(request)

    async def _answer(self, request: Request) -> Answer:
        try:
            way = self._way(request)
            self._guard.check(request, way.role)
            return await way.door(request)
        except Problem as problem:
            return _said(problem)
        except ProtocolClosed:
            raise
        except Exception:
            log.exception("a request failed")
            return _said(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "the server's log says what went wrong"))

    def _way(self, request: Request) -> Way:
        path, method = request.scope.path, request.scope.method
        ways = self._routes.get(path)
        if ways is None:
            detail = f"there is no such path here; known are {', '.join(self._routes)}"
            raise Problem(HTTPStatus.NOT_FOUND, detail, close=method != "GET")
        way = ways.get(method)
        if way is None:
            allowed = ", ".join(ways)
            detail = f"{method[:20]} is not for this path; use {allowed}"
            headers = [("allow", allowed)]
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers=headers, close=True)
        return way


def _said(problem: Problem) -> Answer:
    headers = [("content-type", PROBLEM_JSON), *problem.headers]
    return Answer(problem.status, headers, problem.body())
