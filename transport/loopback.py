"""Names and addresses that lead only to this machine."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final

_AUTHORITY: Final = re.compile(r"(?:\[([\da-f:.]+)\]|([\w.-]+))(?::\d*)?", re.ASCII)
"""A Host header is a name or an address, and maybe a port: no user, no path (RFC 9110, 7.2)."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address leads only to this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def leads_here(authority: str) -> bool:
    """Whether a Host header names only this machine; cached, because every request needs it."""
    return is_loopback(host_of(authority))


def host_of(authority: str) -> str:
    """The name or address in a Host header, in lower case; empty if there is none, or the header has more."""
    found = _AUTHORITY.fullmatch(authority.lower())
    return found[1] or found[2] if found else ""
