"""The application: the handler for each path, and the response to a request that fails."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # the native module has no stub

from waybill.facets.schema_files import find_facet_schema, read_facet_schemas
from waybill.lineage.graph import QUESTIONS
from waybill.marquez.links import DUPLICATES_PATH, OPEN_PATH, RECORDS_PATH

from .endpoints import (
    BATCH_PATH,
    LINEAGE_PATH,
    PROVENANCE_PATH,
    SUMMARY_PATH,
    TRACE_PATH,
    HealthEndpoints,
    LineageEndpoints,
    ProvenanceEndpoints,
    TraceEndpoints,
)
from .http import Answer, Handler, Problem, Request, json_answer
from .http_page import html_page
from .keys import Role
from .logs import about
from .openapi import SCHEMA_JSON, SCHEMA_PATH, description

if TYPE_CHECKING:
    from granian.rsgi import Scope

    from .http import Auth, Bodies, Connections, Exchange
    from .metrics import Metrics

log = logging.getLogger("waybill.collector")


class Route(NamedTuple):
    """A handler, and the role that a key needs for it; None: no key is needed."""

    role: Role | None
    handler: Handler


Routes = Mapping[str, Mapping[str, Route]]
"""By path and method."""


def routes_of(
    lineage: LineageEndpoints, provenance: ProvenanceEndpoints, trace: TraceEndpoints, health: HealthEndpoints
) -> Routes:
    """Every path of the collector."""
    return {
        LINEAGE_PATH: {"POST": Route(Role.EMIT, lineage.event)},
        BATCH_PATH: {"POST": Route(Role.EMIT, lineage.batch)},
        PROVENANCE_PATH: {"POST": Route(Role.EMIT, provenance.take)},
        f"{PROVENANCE_PATH}/query": {"GET": Route(Role.READ, partial(provenance.records, from_deltafi=True))},
        f"{PROVENANCE_PATH}/stats": {"GET": Route(Role.READ, partial(provenance.stats, from_deltafi=True))},
        f"{PROVENANCE_PATH}/flush": {"POST": Route(Role.ADMIN, provenance.flush)},
        RECORDS_PATH: {"GET": Route(Role.READ, provenance.records)},
        SUMMARY_PATH: {"GET": Route(Role.READ, provenance.summary)},
        TRACE_PATH: {"GET": Route(Role.READ, trace.trace)},
        f"{RECORDS_PATH}/stats": {"GET": Route(Role.READ, provenance.stats)},
        OPEN_PATH: {"GET": Route(Role.READ, provenance.open_files)},
        DUPLICATES_PATH: {"GET": Route(Role.READ, provenance.duplicates)},
        **{one.path: {"GET": Route(Role.READ, partial(provenance.answer, one))} for one in QUESTIONS},
        "/health/live": {"GET": Route(None, health.live)},
        "/health/ready": {"GET": Route(None, health.ready)},
        "/metrics": {"GET": Route(Role.READ, health.metrics)},
        "/where": {"GET": Route(Role.READ, health.where)},
        "/openapi.json": {"GET": Route(None, _openapi)},
        "/docs": {"GET": Route(None, _docs)},
        SCHEMA_PATH: {"GET": Route(None, _schema)},
    }


_PATTERNS: Final = (SUMMARY_PATH, TRACE_PATH, SCHEMA_PATH)
"""The paths of routes that end with what the request is about."""


def _pattern_of(path: str, routes: Routes) -> str:
    """The path of the route that serves a request's path."""
    if path in routes:
        return path
    return next((one for one in _PATTERNS if path.startswith(one.partition("{")[0])), path)


async def _openapi(_: Request) -> Answer:
    return json_answer(description())


async def _docs(_: Request) -> Answer:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    headers = [("content-type", "text/html; charset=utf-8"), ("content-security-policy", policy)]
    return Answer(HTTPStatus.OK, headers, html_page().encode())


async def _schema(request: Request) -> Answer:
    schema = find_facet_schema(request.scope.path.removeprefix(SCHEMA_PATH.partition("{")[0]))
    if schema is None:
        detail = f"there is no such schema; the schemas are {', '.join(read_facet_schemas())}"
        raise Problem(HTTPStatus.NOT_FOUND, detail)
    return Answer(HTTPStatus.OK, [("content-type", SCHEMA_JSON)], schema)


class Application:
    """Answers requests; an RSGI application."""

    def __init__(
        self, routes: Routes, connections: Connections, bodies: Bodies, auth: Auth, metrics: Metrics
    ) -> None:
        self._routes: Final = routes
        self._connections = connections
        self._bodies = bodies
        self._auth = auth
        self._metrics = metrics

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        """Answer one request."""
        began_s = time.perf_counter()
        request = Request(scope, exchange)
        self._connections.begin(request)
        try:
            answer = await self._answer(request)
            if answer.parts is None:
                exchange.response_bytes(answer.status, answer.headers, answer.body)
            else:
                stream = exchange.response_stream(answer.status, answer.headers)
                await stream.send_bytes(answer.body)
                async for part in answer.parts:
                    await stream.send_bytes(part)
            took_s = time.perf_counter() - began_s
            self._metrics.answered(**self._path_and_method(request), status=answer.status, took_s=took_s)
        except ProtocolClosed:
            log.debug("a client went away before it was answered")
        finally:
            self._bodies.release(request)
            self._connections.end(request)

    async def _answer(self, request: Request) -> Answer:
        try:
            route = self._route(request)
            self._auth.check(request, route.role)
            return await route.handler(request)
        except Problem as problem:
            self._log(request, problem)
            return problem.answer()
        except ProtocolClosed:
            raise
        except Exception as error:
            same = self._path_and_method(request) | {"error": type(error).__name__}
            log.exception("a request failed", extra=about(same))
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            return Problem(status, "see the server's log for the cause").answer()

    def _log(self, request: Request, problem: Problem) -> None:
        status = problem.status
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            level, what = logging.WARNING, "refused access"
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            level, what = logging.INFO, "refused a request"
        else:
            level, what = logging.WARNING, "could not serve a request"
        same = {"status": status.value, "reason": problem.reason, **self._path_and_method(request)}
        once = {"client": request.client}
        if problem.key:
            same["key"] = problem.key
        log.log(level, what, extra=about(same, once))

    def _path_and_method(self, request: Request) -> dict[str, str]:
        # Unknown paths are counted as one, because each would stay a metric for ever.
        path, method = _pattern_of(request.scope.path, self._routes), request.scope.method
        known = method in self._routes.get(path, ())
        return {"path": path, "method": method} if known else {"path": "other", "method": "other"}

    def _route(self, request: Request) -> Route:
        path, method = _pattern_of(request.scope.path, self._routes), request.scope.method
        by_method = self._routes.get(path)
        if by_method is None:
            detail = f"there is no such path; the paths are {', '.join(self._routes)}"
            raise Problem(HTTPStatus.NOT_FOUND, detail, close=method != "GET")
        if method not in by_method:
            allowed = ", ".join(by_method)
            detail = f"this path does not accept {method[:20]}; use {allowed}"
            headers = [("allow", allowed)]
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers=headers, close=True)
        return by_method[method]
