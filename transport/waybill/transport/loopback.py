"""Which names and addresses lead to this machine only."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host's name or address leads to this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=256)
def leads_here(authority: str) -> bool:
    """Whether a Host header names this machine only; cached, because every request asks."""
    try:
        return is_loopback(urlsplit(f"//{authority}").hostname or "")
    except ValueError:  # half an IPv6 address
        return False
