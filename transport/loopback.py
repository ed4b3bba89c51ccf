"""Names and addresses that lead only to this machine."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


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
    """The name or address in a Host header, in lower case; empty if there is none."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:  # for example, half an IPv6 address
        return ""
