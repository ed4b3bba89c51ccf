"""The forms of a view: the page itself, JSON, CSV and a drawing, and what each says of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.transport.errors import NotFoundError

from ..endpoints.reading import Lane, answer_within, problems_told
from ..http import HTML, JSON, Answer, Endpoint, Problem, redirect_to
from ..keys import Role
from ..sessions import session_id_in
from .rendering import csv_of, link, render

if TYPE_CHECKING:
    from ..endpoints import Readings
    from ..http import Auth, Request
    from ..sessions import Sessions
    from .view import View

SIGN_IN_PATH: Final = "/sign-in"
_MEDIA: Final = {"html": HTML, "json": JSON, "csv": "text/csv; charset=utf-8", "svg": "image/svg+xml"}

PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = (
    ("cache-control", "no-store"),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("vary", "accept, cookie"),
)

_DRAWN: Final = ("/find", "/file", "/dataset", "/job", "/column")
"""The paths of the views that have a drawing."""

_PATHS: Final = ("/", "/open", "/search", *_DRAWN)
"""The paths of the views that need only answers; what these load is loaded with the first question."""

_DESCRIBED: Final = "/slis"
"""The path that is a part of the HTTP interface for programs."""

_ASKED_AT_ONCE: Final = 2
"""So many views are asked for at a time; further ones wait."""

_LONG_MAX: Final = 8
"""So many of those that take long are under way or wait; more are refused."""


class Answering:
    """Answers requests for views.

    Args:
        readings: begins the answers of the collector's home.
        auth: knows who may change something.
        sessions: know the tokens of forms.
        views: those that need more than answers.
    """

    def __init__(self, readings: Readings, auth: Auth, sessions: Sessions, views: Sequence[View]) -> None:
        self._readings = readings
        self._auth = auth
        self._sessions = sessions
        self._views = {view.path: view for view in views}
        self._thread = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="waybill-page")
        # What takes long has a thread of its own, so that nothing else waits for it.
        self._long = Lane("waybill-page-long", _LONG_MAX, "answers that take long")

    def endpoints(self) -> list[Endpoint]:
        """The endpoints of all forms of all views."""
        return [
            Endpoint(
                path,
                Role.READ,
                partial(self._answer, view_path, form),
                show_problem=partial(self.show_problem, form),
                is_described=path == _DESCRIBED,
            )
            for view_path in (*_PATHS, *self._views)
            for path, form in _forms(view_path)
        ]

    async def _answer(self, path: str, form: str, request: Request) -> Answer:
        if path not in self._views:
            self._views |= await asyncio.to_thread(_load_views)
        view = self._views[path]
        params = view.read(request.query)
        work = partial(self._work, view, _form_of(form, request), request, params)
        with problems_told():
            if view.is_long(params):
                return await self._long.run(work, request)
            return await answer_within(self._thread, work, request)

    def _work(self, view: View, form: str, request: Request, params: Any) -> Answer:  # noqa: ANN401 - each view has its own
        reading = self._readings.begin()
        try:
            shown = view.ask(reading.answers, params)
        except NotFoundError as error:
            raise Problem(HTTPStatus.NOT_FOUND, str(error), reason="there is nothing of that name") from None
        headers = (*HEADERS, *reading.headers())
        if form == "html":
            if view.leads_to is not None and (to := view.leads_to(shown)) is not None:
                return redirect_to(to, headers)
            values = {"view": view, "params": params, "shown": shown, "notes": reading.notes()}
            return self.page(request, view.template, values, headers=headers)
        policy = ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
        headers = (("content-type", _MEDIA[form]), policy, *headers)
        return Answer(HTTPStatus.OK, headers, _encoded(view, form, shown, params))

    def page(
        self,
        request: Request,
        template: str,
        values: dict[str, Any],
        *,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Sequence[tuple[str, str]] = HEADERS,
    ) -> Answer:
        """A page of the shell and a template, which has these values and what the shell needs."""
        view = values.get("view")
        more = {
            "key": request.key,
            "may_change": self._auth.may(request.key, Role.ADMIN),
            "csrf": self._sessions.token_of(session_id_in(request.header("cookie"))),
            "path": request.own_path,
            "forms": [] if view is None else _links_to_forms(view, request.query),
            "drawing": partial(_drawing, view, values),
            "asked": getattr(values.get("params"), "asked", ""),
            "notes": [],
        }
        text = render(template, more | values | ({} if view is None else dict(view.helpers)))
        own = (("content-type", HTML), ("content-security-policy", PAGE_POLICY))
        # A name may have half a surrogate pair, which no encoding of the web has.
        body = text.encode(errors="backslashreplace")
        return Answer(status, (*own, *headers), body)

    def show_problem(self, form: str, request: Request, problem: Problem) -> Answer:
        """A problem: on a page, with the same status and words, else as JSON."""
        if _form_of(form, request) != "html":
            answer = problem.answer()
            return answer._replace(headers=(*HEADERS, *answer.headers))
        if problem.status is HTTPStatus.UNAUTHORIZED:
            query = f"?{request.query}" if request.query else ""
            return redirect_to(link(SIGN_IN_PATH, next=request.own_path + query), HEADERS)
        headers = (*HEADERS, *problem.headers)
        return self.page(
            request, "problem.html", {"problem": problem}, status=problem.status, headers=headers
        )


def _load_views() -> dict[str, View]:
    """The views that need only answers, by path; what they ask with loads pyarrow."""
    from .file import FILE
    from .finding import FIND, OPEN
    from .home import HOME
    from .node import NODES
    from .searching import SEARCH

    return {view.path: view for view in (HOME, FIND, OPEN, SEARCH, FILE, *NODES)}


def _form_of(form: str, request: Request) -> str:
    """The form that a path or, without a suffix, the request asks for; htmx wants pages."""
    is_html = "text/html" in request.header("accept") or request.header("hx-request")
    return form or ("html" if is_html else "json")


def _forms(path: str) -> list[tuple[str, str]]:
    """The path and the form of each form of a view; the form is empty where the request decides."""
    stem = path if path != "/" else "/home"
    forms = ("json", "csv", "svg") if path in _DRAWN else ("json", "csv")
    return [(path, ""), *((f"{stem}.{form}", form) for form in forms)]


def _links_to_forms(view: View, query: str) -> list[tuple[str, str]]:
    tail = f"?{query}" if query else ""
    return [(form.upper(), link(path) + tail) for path, form in _forms(view.path) if form]


def _drawing(view: View | None, values: dict[str, Any]) -> str:
    """The drawing of a view as a part of its page; the view has escaped every name in it."""
    if view is None or view.draw is None:
        return ""
    return str(view.draw(values["shown"], values["params"], is_alone=False))


def _encoded(view: View, form: str, shown: msgspec.Struct, params: object) -> bytes:
    if form == "csv":
        return csv_of(view.rows(shown)).encode(errors="backslashreplace")
    if form == "svg" and view.draw is not None:
        return view.draw(shown, params, is_alone=True).encode(errors="backslashreplace")
    return msgspec.json.encode(shown)
