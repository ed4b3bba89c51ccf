"""Authentication: the API key that each request needs, and the addresses that need none."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from http import HTTPStatus
from typing import TYPE_CHECKING

from waybill.transport.loopback import host_of, leads_here

from ..keys import ApiKey, Keys, Role, match
from ..sessions import Sessions, session_id_in
from .exchange import JSON, Problem
from .front import Front

if TYPE_CHECKING:
    from ..metrics import Metrics
    from .endpoint import Endpoint
    from .exchange import Request


class Auth:
    """Checks each request before its handler is called.

    If there are keys, each request needs one, and still does when the last is revoked. Where there never was
    one, anybody on this machine has access, and with `without_keys` everybody. A web page can send requests
    through its browser. It cannot send JSON to another origin without a preflight request, which is never
    granted here. If the page's own host name resolves to this machine, the Host header reveals it. So a
    server that only this machine can reach, or one with `allowed_hosts`, answers only to this machine's
    names, to those, and to that of its public address.
    """

    def __init__(
        self,
        metrics: Metrics,
        keys: Keys,
        sessions: Sessions,
        *,
        loopback: bool,
        without_keys: bool,
        allowed_hosts: Collection[str] = (),
        front: Front | None = None,
    ) -> None:
        self.front = front or Front()
        self._metrics = metrics
        self._guards_host = loopback or bool(allowed_hosts)
        self._allowed_hosts = {host.lower() for host in (*allowed_hosts, self.front.host) if host}
        self._open = without_keys or (loopback and not keys.had_any())
        self._stored = keys
        self._sessions = sessions
        self.keys: tuple[ApiKey, ...] = ()
        """The valid keys."""
        self.read_keys()

    def read_keys(self) -> None:
        """Read the valid keys, which may have changed; once there is one, each request needs one for good."""
        self.keys = self._stored.all()
        self._open = self._open and not self.keys

    @property
    def is_open(self) -> bool:
        """Whether no request needs a key."""
        return self._open

    def may(self, name: str, role: Role) -> bool:
        """Whether the key of this name has a role, or none is needed."""
        return self._open or any(key.name == name and key.may(role) for key in self.keys)

    async def check(self, request: Request, endpoint: Endpoint) -> None:
        """Raise a `Problem` unless the request's key has the role that the endpoint needs.

        Requests of the page may have a session instead of a key. The page itself checks who sends its forms.
        """
        role, is_of_page = endpoint.role, endpoint.show_problem is not None
        hosts = request.hosts()
        if len(hosts) > 1:
            detail = "there are several Host headers, or another host in the address; send one"
            raise self.refusal(HTTPStatus.BAD_REQUEST, detail, "several hosts")
        is_own = hosts and (leads_here(hosts[0]) or host_of(hosts[0]) in self._allowed_hosts)
        if self._guards_host and not (endpoint.any_host or is_own):
            detail = "the Host header is not a loopback address; use one"
            if self._allowed_hosts:
                detail += f", or {', '.join(sorted(self._allowed_hosts))}"
            raise self.refusal(HTTPStatus.FORBIDDEN, detail, "the Host header")
        if role is None:
            return
        if self._open:
            if not is_of_page:
                self._check_sender(request)
            return
        key = await self._key_of(request, is_of_page=is_of_page)
        request.key = key.name
        if not key.may(role):
            detail = f"the key {key.name} does not have the role {role}; use one that does"
            raise self.refusal(
                HTTPStatus.FORBIDDEN, detail, f"the key does not have the role {role}", key.name
            )

    async def _key_of(self, request: Request, *, is_of_page: bool) -> ApiKey:
        """The key of a request or, of one of the page, of its session."""
        scheme, _, given = request.header("authorization").partition(" ")
        of_session = is_of_page and not scheme
        if of_session:
            session_id = session_id_in(request.header("cookie"))
            # It waits for the journal.
            key = await asyncio.to_thread(self._sessions.key_of, session_id, self.keys)
        else:
            key = match(self.keys, given.strip()) if scheme.lower() == "bearer" else None
        if key is not None:
            return key
        detail = "a key is required; create one with `waybill keys add` and send `Authorization: Bearer KEY`"
        if of_session:
            # Whoever opens the page is shown where to sign in, which is no attack to be counted.
            raise Problem(HTTPStatus.UNAUTHORIZED, detail, close=True, reason="not signed in")
        raise self.refusal(HTTPStatus.UNAUTHORIZED, detail, "no key, or an unknown one")

    def _check_sender(self, request: Request) -> None:
        """Refuse requests that any web page can send, unless they change nothing."""
        if request.scope.method not in {"GET", "HEAD"} and not (
            request.is_json or request.header("authorization")
        ):
            detail = f"without a key, the content type must be {JSON}, even without a body; set it"
            raise self.refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, f"no {JSON}")

    def refusal(self, status: HTTPStatus, detail: str, reason: str, key: str = "") -> Problem:
        """The refusal of an access, which is counted."""
        self._metrics.count("refused_access", 1, status=str(status.value))
        headers = [("www-authenticate", "Bearer")] if status is HTTPStatus.UNAUTHORIZED else []
        return Problem(status, detail, headers=headers, close=True, reason=reason, key=key)
