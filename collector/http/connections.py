"""Connections: clients that do not continue their requests are disconnected before connections run out.

granian accepts a limited number of connections, and has one timeout for all clients that have not sent a
complete header. A connection that is idle between two requests may stay long, but a client that stops in the
middle of a header may not. So this module checks the sockets of this process itself. The number of bytes that
the kernel has received on a socket since its last request tells the two apart.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from ..logs import about

if TYPE_CHECKING:
    from .exchange import Request

log = logging.getLogger("waybill.collector")

CONNECTIONS_MAX: Final = 4096
"""How many connections are served at a time; further ones wait."""

_SHARE: Final = CONNECTIONS_MAX // 2
"""How many connections one address may keep waiting for its requests."""

_CROWD: Final = CONNECTIONS_MAX * 7 // 8
"""Above this number, connections that wait for their requests are closed, the oldest first."""

_DESCRIPTORS: Final = "/dev/fd"
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_RECEIVED: Final = struct.Struct("128xQ")
"""`tcpi_bytes_received` of Linux's `tcp_info`."""


class _Waits(IntEnum):
    """The part that the client must send next, in the order in which such connections are closed."""

    HEADER = 0
    BODY = 1
    FIRST_REQUEST = 2
    BEGUN = 3
    """A header or a body that was not there at the last check."""
    REQUEST = 4


class _Waiting(NamedTuple):
    """A connection whose client has to continue."""

    waits: _Waits
    since_s: float
    client: str
    descriptor: int

    @property
    def host(self) -> str:
        return self.client.rpartition(":")[0]


class _Quiet(NamedTuple):
    """A connection without a request."""

    received: int | None
    """The bytes received when its last request ended; None: it had a request since the last check."""
    header_since_s: float | None = None


class Connections:
    """The connections to one port of this process; one event loop uses it."""

    def __init__(self, port: int, *, header_timeout_s: float) -> None:
        self._port = port
        self._header_timeout_s = header_timeout_s
        self._requests: dict[str, tuple[Request, float]] = {}
        self._quiet: dict[str, _Quiet] = {}
        self._looked_s = 0.0

    def begin(self, request: Request) -> None:
        """Note that a request's header has arrived."""
        self._requests[request.client] = request, time.monotonic()

    def end(self, request: Request) -> None:
        """Note that a request is over."""
        self._requests.pop(request.client, None)
        self._quiet[request.client] = _HAD_ONE

    def look(self) -> None:
        """Close the connections whose header takes too long, and those above the limits."""
        hosts, waiting = self._look()
        late_s = self._looked_s - self._header_timeout_s
        left, late, crowd = hosts.total(), 0, 0
        for one in sorted(waiting):
            is_late = one.waits is _Waits.HEADER and one.since_s < late_s
            if is_late or left > _CROWD or hosts[one.host] > _SHARE:
                left -= 1
                hosts[one.host] -= 1
                late, crowd = late + is_late, crowd + (not is_late)
                _close(one)
        if late:
            log.warning(
                "closed connections whose request header did not arrive", extra=about({}, {"count": late})
            )
        if crowd:
            log.warning(
                "closed connections without a request, because there are many",
                extra=about({}, {"count": crowd}),
            )

    def close_waiting(self) -> None:
        """Close every connection that has no request, or one whose body has not arrived."""
        for one in self._look()[1]:
            _close(one)

    def _look(self) -> tuple[Counter[str], list[_Waiting]]:
        """How many connections each host has, and which of them wait for their clients."""
        before_s, self._looked_s = self._looked_s, time.monotonic()
        hosts, waiting, quiet = Counter[str](), [], {}
        for descriptor, client, received in _connections(self._port):
            request, since_s = self._requests.get(client, (None, 0.0))
            if request is None:
                waits, since_s, quiet[client] = self._quietly(client, received)
            else:
                waits = _Waits.BODY
            if waits in {_Waits.HEADER, _Waits.BODY} and since_s > before_s:
                waits = _Waits.BEGUN
            one = _Waiting(waits, since_s, client, descriptor)
            hosts[one.host] += 1
            if request is None or request.is_arriving:
                waiting.append(one)
        self._quiet = quiet
        return hosts, waiting

    def _quietly(self, client: str, received: int) -> tuple[_Waits, float, _Quiet]:
        """What a connection without a request waits for, since when, and the state to remember for it."""
        before = self._quiet.get(client, _NEW)
        if before.received is None:
            return _Waits.REQUEST, self._looked_s, _Quiet(received)
        if received > before.received:
            since_s = before.header_since_s or self._looked_s
            return _Waits.HEADER, since_s, _Quiet(before.received, since_s)
        return (_Waits.REQUEST if received else _Waits.FIRST_REQUEST), self._looked_s, before


_NEW: Final = _Quiet(0)
_HAD_ONE: Final = _Quiet(None)


def _connections(port: int) -> Iterator[tuple[int, str, int]]:
    """The connections to a port: descriptor, the client as granian names it, and the bytes received."""
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - thousands of names, and no paths
        try:
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=int(name))
        except OSError:
            continue  # no socket, or closed meanwhile
        try:
            if one.getsockname()[1:2] != (port,):
                continue
            yield int(name), _client(one), _received(one)
        except OSError:
            continue  # it listens, or is closed
        finally:
            one.detach()


def _client(one: socket.socket) -> str:
    host, port, *_ = one.getpeername()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _received(one: socket.socket) -> int:
    """The bytes received; none if the kernel does not report them."""
    if _TCP_INFO is None:
        return 0
    info = one.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RECEIVED.size)
    return int(_RECEIVED.unpack(info)[0]) if len(info) == _RECEIVED.size else 0


def _close(waiting: _Waiting) -> None:
    """End a connection; granian then closes its socket."""
    try:
        # The descriptor may belong to another connection by now.
        with socket.socket(fileno=os.dup(waiting.descriptor)) as one:
            if _client(one) == waiting.client:
                one.shutdown(socket.SHUT_RDWR)
    except OSError:
        log.debug("a connection was already closed")
