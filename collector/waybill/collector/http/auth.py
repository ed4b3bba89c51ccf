"""Authentication: the API key that each request needs, and the addresses from which none is needed."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from waybill.collector.http.exchange import JSON, Problem
from waybill.collector.keys import ApiKey, Role, match
from waybill.transport.loopback import leads_here

if TYPE_CHECKING:
    from waybill.collector.http.exchange import Request
    from waybill.collector.metrics import Metrics


class Auth:
    """Checks each request before its handler is called.

    Where there are keys, each request needs one. Without keys anybody on this machine may come in, and with
    `without_keys` anybody at all. A page in a browser can use the browser as its messenger: it cannot send
    JSON to another origin without asking first, which is never granted here; and if its own name leads here,
    the Host header gives it away. So a server that only this machine reaches answers to this machine's names
    only.
    """

    def __init__(self, metrics: Metrics, *, loopback: bool, without_keys: bool) -> None:
        self._metrics = metrics
        self._loopback = loopback
        self._open = loopback or without_keys
        self.keys: tuple[ApiKey, ...] = ()
        """The keys that are good now; set anew when they change."""

    def check(self, request: Request, role: Role | None) -> None:
        """Raise a `Problem` unless the request's key has this role; with None no key is needed."""
        if self._loopback and not leads_here(request.scope.authority or request.header("host")):
            detail = "the Host header names no loopback address; use one"
            raise self._refused(HTTPStatus.FORBIDDEN, detail, "the Host header")
        if role is None:
            return
        if self._open and not self.keys:
            self._check_sender(request)
            return
        scheme, _, given = request.header("authorization").partition(" ")
        key = match(self.keys, given.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            detail = "a key is asked for; send one of `waybill keys add` as `Authorization: Bearer KEY`"
            raise self._refused(HTTPStatus.UNAUTHORIZED, detail, "no key, or an unknown one")
        if not key.may(role):
            detail = f"the key {key.name} has not the role {role}; use one that has"
            raise self._refused(HTTPStatus.FORBIDDEN, detail, f"the key has not the role {role}", key.name)

    def _check_sender(self, request: Request) -> None:
        """Refuse what any page in a browser can send, unless it changes nothing."""
        if request.scope.method != "GET" and not (request.is_json or request.header("authorization")):
            detail = (
                f"the content type is not {JSON}, as it has to be without a key, even without a body; say so"
            )
            raise self._refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail, f"no {JSON}")

    def _refused(self, status: HTTPStatus, detail: str, reason: str, key: str = "") -> Problem:
        self._metrics.count("refused_access", 1, status=str(status.value))
        headers = [("www-authenticate", "Bearer")] if status is HTTPStatus.UNAUTHORIZED else []
        return Problem(status, detail, headers=headers, close=True, reason=reason, key=key)
