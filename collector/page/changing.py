"""All that the page changes: signing in and out, and trying again what was set aside.

A form is accepted only from a page of this collector: it has the token of its session, and its `Origin` is
ours: that of the Host header, or of the public address.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from waybill.transport import AdmissionError, JournalError, NotFoundError

from ..http import Endpoint, Problem, redirect_to
from ..keys import Role, match
from ..sessions import COOKIE, SESSION_S, session_id_in
from .answering import HEADERS, SIGN_IN_PATH
from .rendering import link
from .sign_in import Tries, own_path

if TYPE_CHECKING:
    from ..http import Answer, Auth, Bodies, Request
    from ..sessions import Sessions
    from .answering import Answering
    from .health import HealthOfHome

SIGN_OUT_PATH: Final = "/sign-out"
RETRY_PATH: Final = "/health/retry"

_Form = Mapping[str, str]


class Changing:
    """Answers the forms of the page.

    Args:
        answering: makes pages.
        bodies: reads forms.
        auth: has the valid keys.
        sessions: those of the home.
        health: tries again what was set aside.
        ensure_runner: starts the home's runner, unless there is one.
    """

    def __init__(
        self,
        answering: Answering,
        bodies: Bodies,
        auth: Auth,
        sessions: Sessions,
        health: HealthOfHome,
        *,
        ensure_runner: Callable[[], object],
    ) -> None:
        self._answering = answering
        self._bodies = bodies
        self._auth = auth
        self._sessions = sessions
        self._health = health
        self._ensure_runner = ensure_runner
        self._tries = Tries()

    def endpoints(self) -> list[Endpoint]:
        """The endpoints of all forms, and the page on which people sign in."""
        show = partial(self._answering.show_problem, "html")
        forms = [
            (SIGN_IN_PATH, None, self._sign_in),
            (SIGN_OUT_PATH, None, self._sign_out),
            (RETRY_PATH, Role.ADMIN, self._retry),
        ]
        return [
            Endpoint(SIGN_IN_PATH, None, self._show_sign_in, show_problem=show),
            *(Endpoint(path, role, partial(self._take, form), "POST", show) for path, role, form in forms),
        ]

    async def _show_sign_in(self, request: Request) -> Answer:
        to = own_path(parse_qs(request.query).get("next", ["/"])[0])
        if self._auth.is_open:
            return _redirect(to)
        return self._answering.page(request, "sign-in.html", {"next": to})

    async def _take(self, form: Callable[[Request, _Form], Awaitable[Answer]], request: Request) -> Answer:
        given = await self._bodies.read_form(request)
        host, origin = request.header("host"), request.header("origin")
        site = request.header("sec-fetch-site") or "same-origin"
        own = {f"http://{host}", f"https://{host}", self._auth.front.origin}
        is_ours = origin in own if origin else site == "same-origin"
        token = self._sessions.token_of(session_id_in(request.header("cookie")))
        if not (is_ours and hmac.compare_digest(token.encode(), given.get("csrf", "").encode())):
            detail = (
                "the form is not one of this page, or its session has ended; load the page again and repeat"
            )
            raise self._auth.refusal(HTTPStatus.FORBIDDEN, detail, "a form from elsewhere")
        try:
            return await form(request, given)
        except NotFoundError as error:
            raise Problem(HTTPStatus.NOT_FOUND, str(error), reason="it is gone") from None
        except AdmissionError as error:
            detail = f"it is refused again: {error}"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail, reason="refused again") from None
        except JournalError as error:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), reason="the journal") from None

    async def _sign_in(self, request: Request, form: _Form) -> Answer:
        address = request.client.rpartition(":")[0]
        self._tries.check(address)
        key = match(self._auth.keys, form.get("key", "").strip())
        if key is None:
            self._tries.note(address)
            detail = "there is no such key; create one with `waybill keys add NAME --role read`"
            raise self._auth.refusal(HTTPStatus.FORBIDDEN, detail, "an unknown key")
        session_id = await asyncio.to_thread(self._sessions.begin, key)
        return _redirect(own_path(form.get("next", "/")), self._cookie(request, session_id, SESSION_S))

    async def _sign_out(self, request: Request, _: _Form) -> Answer:
        await asyncio.to_thread(self._sessions.end, session_id_in(request.header("cookie")))
        return _redirect(SIGN_IN_PATH, self._cookie(request, "", 0))

    def _cookie(self, request: Request, session_id: str, lasts_s: int) -> tuple[str, str]:
        """The header that has a browser keep a session's id, or forget it."""
        front = self._auth.front
        secure = "; Secure" if front.is_tls or request.scope.scheme == "https" else ""
        flags = f"HttpOnly; Max-Age={lasts_s}; Path={front.path or '/'}; SameSite=Lax{secure}"
        return "set-cookie", f"{COOKIE}={session_id}; {flags}"

    async def _retry(self, _: Request, form: _Form) -> Answer:
        item = (form.get("box", ""), form.get("id", ""), form.get("owner", ""))
        await asyncio.to_thread(self._health.retry, *item)
        await asyncio.to_thread(self._ensure_runner)
        return _redirect(f"/health#{item[0]}")


def _redirect(to: str, *headers: tuple[str, str]) -> Answer:
    return redirect_to(link(to), (*HEADERS, *headers))
