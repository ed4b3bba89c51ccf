"""The application: the handler for each path, and the response to a request that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # the native module has no stub

from waybill.facets.context import LINEAGE_PATH
from waybill.facets.schema_files import find_facet_schema, read_facet_schemas
from waybill.lineage.graph import QUESTIONS, OfImpact
from waybill.lineage.levels import Sli
from waybill.marquez.links import DUPLICATES_PATH, OPEN_PATH, RECORDS_PATH
from waybill.transport import Rejects
from waybill.transport.clock import SYSTEM_CLOCK

from .endpoints import (
    BATCH_PATH,
    PROVENANCE_PATH,
    SUMMARY_PATH,
    TRACE_PATH,
    HealthEndpoints,
    LineageEndpoints,
    ProvenanceEndpoints,
    TraceEndpoints,
)
from .http import BODY_TIMEOUT_S, HTML, Answer, Bodies, Endpoint, Problem, Request, busy, failed, json_answer
from .intake import Acceptor
from .keys import Role
from .logs import about
from .openapi import SCHEMA_JSON, SCHEMA_PATH, description
from .page import page_endpoints

if TYPE_CHECKING:
    from granian.rsgi import Scope

    from waybill.transport.home import Home

    from .endpoints import Readings
    from .http import Auth, Exchange
    from .metrics import Metrics, Tallies
    from .sessions import Sessions

log = logging.getLogger("waybill.collector")


def application_of(
    home: Home,
    auth: Auth,
    sessions: Sessions,
    readings: Readings,
    metrics: Metrics,
    *,
    tallies: Tallies | None = None,
    body_timeout_s: float = BODY_TIMEOUT_S,
    follows: bool = False,
) -> Application:
    """The application that serves a home.

    Args:
        home: the home.
        auth: checks each request.
        sessions: those of the home.
        readings: begins its answers.
        metrics: the counters of this process.
        tallies: those of the other workers, if there are any.
        body_timeout_s: how long a body may take to arrive.
        follows: whether the collector follows Spark's event logs.
    """
    journal, settings, redaction = home.journal, home.settings, home.redaction
    bodies = Bodies(timeout_s=body_timeout_s)
    acceptor = Acceptor(journal, Rejects(journal, redaction), metrics, system_name=settings.system_name)
    lineage = LineageEndpoints(bodies, acceptor, redaction)
    provenance = ProvenanceEndpoints(bodies, acceptor, journal, settings, readings)
    health = HealthEndpoints(journal, settings, readings, metrics, tallies, follows=follows)
    endpoints = [
        Endpoint(LINEAGE_PATH, Role.EMIT, lineage.event, "POST"),
        Endpoint(BATCH_PATH, Role.EMIT, lineage.batch, "POST"),
        Endpoint(PROVENANCE_PATH, Role.EMIT, provenance.take, "POST"),
        Endpoint(f"{PROVENANCE_PATH}/query", Role.READ, partial(provenance.records, from_deltafi=True)),
        Endpoint(f"{PROVENANCE_PATH}/stats", Role.READ, partial(provenance.stats, from_deltafi=True)),
        Endpoint(f"{PROVENANCE_PATH}/flush", Role.ADMIN, provenance.flush, "POST"),
        Endpoint(RECORDS_PATH, Role.READ, provenance.records),
        Endpoint(SUMMARY_PATH, Role.READ, provenance.summary),
        Endpoint(TRACE_PATH, Role.READ, TraceEndpoints(readings).trace),
        Endpoint(f"{RECORDS_PATH}/stats", Role.READ, provenance.stats),
        Endpoint(OPEN_PATH, Role.READ, provenance.open_files),
        Endpoint(DUPLICATES_PATH, Role.READ, provenance.duplicates),
        *(Endpoint(one.path, Role.READ, partial(provenance.answer, one)) for one in QUESTIONS),
        Endpoint("/health/live", None, health.live, any_host=True),
        Endpoint("/health/ready", None, health.ready, any_host=True),
        Endpoint("/metrics", Role.READ, health.metrics, any_host=True),
        Endpoint("/where", Role.READ, health.where),
        Endpoint("/openapi.json", None, _openapi),
        Endpoint("/docs", None, _docs),
        Endpoint(SCHEMA_PATH, None, _schema),
        *page_endpoints(home, readings, bodies, auth, sessions, find_problems=health.problems),
    ]
    return Application(endpoints, bodies, auth, metrics)


_DOCS: Final = Path(__file__).parent / "http.html"
"""The interface for people; `python docs/reference.py` writes it."""

_NO_QUESTIONS: Final = frozenset({"/metrics", "/where"})


def _questions_of(endpoints: Sequence[Endpoint]) -> dict[str, frozenset[str]]:
    reading = {one.path for one in endpoints if one.role is Role.READ and one.method == "GET"}
    questions = frozenset(reading - _NO_QUESTIONS)
    return {Sli.QUERY_LATENCY.value: questions, Sli.IMPACT_ANALYSIS.value: frozenset({OfImpact.path})}


async def _openapi(_: Request) -> Answer:
    return json_answer(description())


async def _docs(_: Request) -> Answer:
    policy = ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
    return Answer(HTTPStatus.OK, [("content-type", HTML), policy], _DOCS.read_bytes())


async def _schema(request: Request) -> Answer:
    schema = find_facet_schema(request.name)
    if schema is None:
        detail = f"there is no such schema; the schemas are {', '.join(read_facet_schemas())}"
        raise Problem(HTTPStatus.NOT_FOUND, detail)
    return Answer(HTTPStatus.OK, [("content-type", SCHEMA_JSON)], schema)


class Application:
    """Answers requests; an RSGI application.

    Args:
        endpoints: what it answers.
        bodies: reads what is sent to them.
        auth: checks each request.
        metrics: counts them.

    Attributes:
        questions: by service level, the paths whose answers it is about.
    """

    def __init__(self, endpoints: Sequence[Endpoint], bodies: Bodies, auth: Auth, metrics: Metrics) -> None:
        self.questions: Final = _questions_of(endpoints)
        described = (one.path for one in endpoints if one.show_problem is None or one.is_described)
        self._described: Final = list(dict.fromkeys(described))
        self._endpoints: Final[dict[str, dict[str, Endpoint]]] = {}
        self._named: Final[dict[str, dict[str, Endpoint]]] = {}
        for one in endpoints:
            stem, _, name = one.path.partition("{")
            by_method = (self._named if name else self._endpoints).setdefault(stem, {})
            by_method[one.method] = one
            if one.method == "GET":
                by_method["HEAD"] = one
        self._bodies = bodies
        self._auth = auth
        self._metrics = metrics
        self._open: Final[dict[Request, asyncio.Task[object] | None]] = {}

    @property
    def open_requests(self) -> int:
        """How many requests are being answered."""
        return len(self._open)

    def end_arriving(self) -> None:
        """End the requests whose clients have to send more of them."""
        for request, task in self._open.items():
            if request.is_arriving and task is not None:
                task.cancel()

    async def __rsgi__(self, scope: Scope, exchange: Exchange) -> None:
        """Answer one request."""
        began_s = SYSTEM_CLOCK.monotonic_s()
        request = Request(scope, exchange)
        request.client = self._auth.front.client_of(request)
        request.own_path = self._auth.front.own_path(scope.path)
        self._open[request] = asyncio.current_task()
        try:
            status = await self._answer(request)
            took_s = SYSTEM_CLOCK.monotonic_s() - began_s
            self._metrics.answered(request.path, request.method, status, took_s)
        except ProtocolClosed:
            log.debug("a client went away before it was answered")
        finally:
            self._bodies.release(request)
            del self._open[request]

    async def _answer(self, request: Request) -> int:
        """Answer a request; returns the status, or that of what ended an answer which had begun."""
        answer = endpoint = None
        try:
            try:
                endpoint = self._endpoint_of(request)
                request.path, request.method = endpoint.path, endpoint.method
                await self._auth.check(request, endpoint)
                answer = await endpoint.answer(request)
            except Problem as problem:
                answer = self._answer_of(problem, request, endpoint)
            except asyncio.CancelledError:
                # The collector ends. Without an answer, granian would say 500.
                ending = busy("the collector is being stopped; send it again", close=True)
                answer = self._answer_of(ending, request, endpoint)
            if answer.parts is None:
                answer.send(request)
            else:
                await answer.send_parts(request)
        except ProtocolClosed:
            raise
        except Problem as problem:  # the answer has begun, and its last line is this one
            self._log(request, problem)
            return problem.status
        except Exception as error:
            same = {"path": request.path, "method": request.method, "error": type(error).__name__}
            log.exception("a request failed", extra=about(same))
            failure = failed().answer()
            if answer is None:  # otherwise it has begun
                failure.send(request)
            return failure.status
        return answer.status

    def _answer_of(self, problem: Problem, request: Request, endpoint: Endpoint | None) -> Answer:
        self._log(request, problem)
        if endpoint is None or endpoint.show_problem is None:
            return problem.answer()
        return endpoint.show_problem(request, problem)

    def _endpoint_of(self, request: Request) -> Endpoint:
        """What answers a request.

        Raises:
            Problem: there is no such path, or it does not accept the method.
        """
        path, method = request.own_path, request.scope.method
        by_method = self._endpoints.get(path)
        if by_method is None:
            stem = next((one for one in self._named if path.startswith(one)), None)
            if stem is None:
                detail = f"there is no such path; the paths are {', '.join(self._described)}"
                raise Problem(HTTPStatus.NOT_FOUND, detail, close=method != "GET")
            by_method, request.name = self._named[stem], path.removeprefix(stem)
        endpoint = by_method.get(method)
        if endpoint is None:
            allowed = ", ".join(sorted(by_method))
            detail = f"this path does not accept {method[:20]}; use {allowed}"
            headers = [("allow", allowed)]
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers=headers, close=True)
        return endpoint

    def _log(self, request: Request, problem: Problem) -> None:
        status = problem.status
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            level, what = logging.WARNING, "refused access"
        elif status < HTTPStatus.INTERNAL_SERVER_ERROR:
            level, what = logging.INFO, "refused a request"
        else:
            level, what = logging.WARNING, "could not serve a request"
        same = {
            "status": status.value,
            "reason": problem.reason,
            "path": request.path,
            "method": request.method,
        }
        once = {"client": request.client}
        if problem.key:
            same["key"] = problem.key
        log.log(level, what, extra=about(same, once))
