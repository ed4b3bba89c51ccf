"""What is in front of the collector: the address by which users know it, and proxies on the way there."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from .exchange import Request

Network = IPv4Network | IPv6Network

_PORTS: Final = {"http": 80, "https": 443}


class Front:
    """The public address, and the proxies that are believed.

    Args:
        public_url: the address for users; None: the one at which the collector listens. A proxy may take its
            path away or leave it.
        proxies: the addresses of proxies that say whom they ask for. Nobody else is believed.

    Attributes:
        origin: the origin that browsers send with forms of the public address; empty: there is none.
        host: its host; empty: there is none.
        path: its path, without a slash at its end; empty: it has none.
    """

    def __init__(self, public_url: str | None = None, proxies: Collection[Network] = ()) -> None:
        parts = urlsplit(public_url or "")
        self.host = parts.hostname or ""
        self.path = parts.path.rstrip("/")
        name = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if parts.port in {None, _PORTS.get(parts.scheme)} else f":{parts.port}"
        self.origin = f"{parts.scheme}://{name}{port}" if name else ""
        self._proxies = proxies

    @property
    def is_tls(self) -> bool:
        """Whether users reach the collector by TLS, whoever speaks it."""
        return self.origin.startswith("https:")

    def own_path(self, path: str) -> str:
        """The path of a request as the collector has it."""
        return path.removeprefix(self.path) or "/" if f"{path}/".startswith(f"{self.path}/") else path

    def client_of(self, request: Request) -> str:
        """Address and port of who asks: the nearest that is no proxy; the port is 0 if a proxy names it."""
        client = request.client
        # Each proxy adds at the end from whom it got the request.
        named = ",".join(request.all_of("x-forwarded-for")).split(",") if self._proxies else []
        with contextlib.suppress(ValueError):
            while named and any(ip_address(_host_of(client)) in network for network in self._proxies):
                client = f"{ip_address(named.pop().strip())}:0"
        return client


def _host_of(client: str) -> str:
    return client.rpartition(":")[0].strip("[]")
