"""The application: the handler for each path, and the response to a request that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from granian.rsgi import ProtocolClosed  # type: ignore[attr-defined]  # the native module has no stub
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

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
from .http import (
    BODY_TIMEOUT_S,
    Bodies,
    Endpoint,
    Handler,
    Problem,
    Request,
    WebRequest,
    WebResponse,
    answer_through,
    json_response,
    request_of,
)
from .intake import Acceptor
from .keys import Role
from .logs import about
from .openapi import SCHEMA_JSON, SCHEMA_PATH, description
from .page import HealthOfHome, LevelsOfHome, page_endpoints

if TYPE_CHECKING:
    from granian.rsgi import Scope
    from starlette.types import Receive, Scope as ScopeOfWeb, Send

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
    # What these cost per request counts, so they do not go through Starlette.
    intakes = {LINEAGE_PATH: lineage.event, BATCH_PATH: lineage.batch, PROVENANCE_PATH: provenance.take}
    endpoints = [
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
        *page_endpoints(
            readings,
            auth,
            sessions,
            HealthOfHome(journal, settings, redaction, health.problems),
            LevelsOfHome(journal, settings),
            ensure_runner=home.ensure_runner,
        ),
    ]
    return Application(intakes, endpoints, bodies, auth, metrics)


_DOCS: Final = Path(__file__).parent / "http.html"
"""The interface for people; `python docs/reference.py` writes it."""

_NO_QUESTIONS: Final = frozenset({"/metrics", "/where"})


def _questions_of(endpoints: Sequence[Endpoint]) -> dict[str, frozenset[str]]:
    reading = {one.path for one in endpoints if one.role is Role.READ and one.method == "GET"}
    questions = frozenset(reading - _NO_QUESTIONS)
    return {Sli.QUERY_LATENCY.value: questions, Sli.IMPACT_ANALYSIS.value: frozenset({OfImpact.path})}


async def _openapi(_: WebRequest) -> WebResponse:
    return json_response(description())


async def _docs(_: WebRequest) -> WebResponse:
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return WebResponse(_DOCS.read_bytes(), media_type="text/html", headers=headers)


async def _schema(request: WebRequest) -> WebResponse:
    schema = find_facet_schema(request.path_params["name"])
    if schema is None:
        detail = f"there is no such schema; the schemas are {', '.join(read_facet_schemas())}"
        raise Problem(HTTPStatus.NOT_FOUND, detail)
    return WebResponse(schema, media_type=SCHEMA_JSON)


class _Rest(Convertor[str]):
    """A name in a path stands for all that follows, even over several lines."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("rest", _Rest())


class Application:
    """Answers requests; an RSGI application.

    Args:
        intakes: the paths that take events.
        endpoints: the others.
        bodies: reads what the former take.
        auth: checks each request.
        metrics: counts them.

    Attributes:
        questions: by service level, the paths whose answers it is about.
    """

    def __init__(
        self,
        intakes: Mapping[str, Handler],
        endpoints: Sequence[Endpoint],
        bodies: Bodies,
        auth: Auth,
        metrics: Metrics,
    ) -> None:
        self.questions: Final = _questions_of(endpoints)
        self._intakes = intakes
        described = (one.path for one in endpoints if one.show_problem is None or one.is_described)
        self._paths: Final = list(dict.fromkeys([*self._intakes, *described]))
        self._router: Final = Router(
            [self._route_to(one) for one in endpoints],
            redirect_slashes=False,
            default=self._refuse_path,
        )
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
        """Answer a request; returns the status."""
        try:
            take = self._intakes.get(request.own_path)
            if take is None or request.scope.method != "POST":
                return await answer_through(self._router, request)
            request.path, request.method = request.own_path, "POST"
            await self._auth.check(request, Role.EMIT)
            answer = await take(request)
        except Problem as problem:
            self._log(request, problem)
            answer = problem.answer()
        except ProtocolClosed:
            raise
        except HTTPException as error:  # Starlette's: the path is known, and the method is not
            refused = _not_accepted(request.scope.method, (error.headers or {}).get("Allow", "GET"))
            self._log(request, refused)
            answer = refused.answer()
        except Exception as error:
            same = {"path": request.path, "method": request.method, "error": type(error).__name__}
            log.exception("a request failed", extra=about(same))
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            answer = Problem(status, "see the server's log for the cause").answer()
        request.exchange.response_bytes(answer.status, answer.headers, answer.body)
        return answer.status

    def _route_to(self, endpoint: Endpoint) -> Route:
        route = Route(endpoint.path.replace("}", ":rest}"), self._guarded(endpoint))
        route.methods = {"GET", "HEAD"} if endpoint.method == "GET" else {endpoint.method}
        return route

    def _guarded(self, endpoint: Endpoint) -> Callable[[WebRequest], Awaitable[WebResponse]]:
        """An endpoint that first checks who asks."""

        async def answer(web: WebRequest) -> WebResponse:
            request = request_of(web)
            request.path, request.method = endpoint.path, endpoint.method
            try:
                await self._auth.check(
                    request,
                    endpoint.role,
                    is_of_page=endpoint.show_problem is not None,
                    any_host=endpoint.any_host,
                )
                web.state.key = request.key
                return await endpoint.answer(web)
            except Problem as problem:
                if endpoint.show_problem is None:
                    raise
                self._log(request, problem)
                return endpoint.show_problem(web, problem)

        return answer

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

    async def _refuse_path(self, scope: ScopeOfWeb, receive: Receive, send: Send) -> None:
        del receive, send
        path, method = scope["path"], scope["method"]
        if path in self._intakes:
            raise _not_accepted(method, "POST")
        detail = f"there is no such path; the paths are {', '.join(self._paths)}"
        raise Problem(HTTPStatus.NOT_FOUND, detail, close=method != "GET")


def _not_accepted(method: str, allowed: str) -> Problem:
    allowed = ", ".join(sorted(allowed.split(", ")))
    detail = f"this path does not accept {method[:20]}; use {allowed}"
    return Problem(HTTPStatus.METHOD_NOT_ALLOWED, detail, headers=[("allow", allowed)], close=True)
