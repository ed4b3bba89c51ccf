"""The guard: who may come in."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from waybill.collector.problem import Problem

if TYPE_CHECKING:
    from waybill.collector.exchange import Request


def is_loopback(host: str) -> bool:
    """Whether a host's name or address leads to this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Guard:
    """Checks each request before its door is opened.

    A page in a browser can make this machine's own programs its messengers. It cannot send JSON to another
    origin without asking first, which is never granted here; and if its own name leads here, the name gives
    it away. So a server that only this machine reaches answers to this machine's names only.

    Args:
        loopback: whether the server listens on a loopback address.
    """

    def __init__(self, *, loopback: bool) -> None:
        self._loopback = loopback

    def check(self, request: Request) -> None:
        """Let a request through.

        Raises:
            Problem: it may not pass.
        """
        if self._loopback:
            authority = request.scope.authority or request.header("host")
            if not is_loopback(urlsplit(f"//{authority}").hostname or ""):
                detail = "the Host header names no loopback address; use one"
                raise Problem(HTTPStatus.FORBIDDEN, detail, close=True)
