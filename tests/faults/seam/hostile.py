"""Malicious clients and users; none of them may block others or stop a projection."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import http.client
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from seam.emissions import emission

HOSTILE: Final = "hostile"
"""The prefix of their file names."""

_NOBODY: Final = 65_534
_HELD_S: Final = 5.0
_HEAD: Final = (
    "POST /provenance HTTP/1.1\r\nHost: localhost\r\n"
    "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n"
)
_JSON: Final = {"Content-Type": "application/json"}


def claim_much(port: int) -> None:
    """Announce large bodies, but send one byte of each."""
    sockets = []
    with contextlib.suppress(OSError):
        for size_mib in (60, 32, 16):
            one = socket.create_connection(("127.0.0.1", port), timeout=5)
            one.sendall(_HEAD.format(size_mib * 2**20).encode() + b"[")
            sockets.append(one)
        time.sleep(_HELD_S)
    for one in sockets:
        one.close()


def send_half_headers(port: int) -> None:
    sockets = []
    with contextlib.suppress(OSError):
        for _ in range(200):
            one = socket.create_connection(("127.0.0.1", port), timeout=5)
            one.sendall(b"GET /health/live HTTP/1.1\r\nHost: loc")
            sockets.append(one)
        time.sleep(_HELD_S)
    for one in sockets:
        one.close()


def send_bombs(port: int) -> None:
    bodies = [
        (b"[" + b",".join([b"1"] * 99_000) + b"]", "/provenance"),
        (_shared_transform(), "/provenance"),
        (_long_outputs(), "/api/v1/lineage"),
    ]
    for body, path in bodies:
        _post(port, path, gzip.compress(body), {"Content-Encoding": "gzip"})


def send_depth(port: int) -> None:
    deep = b'{"a":' * 970 + b"1" + b"}" * 970
    event = json.loads(emission(3).items[0][1])
    event["eventType"], event["run"] = "START", {"runId": HOSTILE, "facets": {"deep": "@"}}
    _post(port, "/api/v1/lineage", json.dumps(event).encode().replace(b'"@"', deep))


def send_rubbish(port: int) -> None:
    for body in (b"", b"{", b"\xff\xfe", b"[]", b"null", b"[{}]", b'{"eventTime": 7}'):
        for path in ("/provenance", "/api/v1/lineage", "/api/v1/lineage/batch"):
            _post(port, path, body)


def _post(port: int, path: str, body: bytes, headers: dict[str, str] | None = None) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", path, body, {**_JSON, **(headers or {})})
        connection.getresponse().read()
    connection.close()


def _shared_transform() -> bytes:
    """A body that is small on the wire and large in memory: records that share one long transform."""
    one = json.loads(emission(2).items[0][1])[0]
    shared = json.dumps("t" * 200_000)
    texts = (json.dumps(one | {"did": f"{HOSTILE}-{at}", "transforms": ["@"]}) for at in range(300))
    return ("[" + ",".join(texts) + "]").replace('"@"', shared).encode()


def _long_outputs() -> bytes:
    event = json.loads(emission(3).items[0][1])
    event["run"] = {"runId": HOSTILE}
    event["job"]["name"] = "n" * 90_000
    event["outputs"] = [{"namespace": "o", "name": f"{at}{'x' * 100}"} for at in range(1_000)]
    return json.dumps(event).encode()


CLIENTS: Final[tuple[Callable[[int], None], ...]] = (
    claim_much,
    send_half_headers,
    send_bombs,
    send_depth,
    send_rubbish,
)
"""Each is given the port of a collector."""


def opens_as_another_user(home: Path) -> bool:
    """Whether another user of this machine can open, and so lock, a home's files; needs root."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0
    status = 0
    try:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        for name in ("journal.lock", "journal.db", "runner.lock"):
            with contextlib.suppress(OSError), (home / name).open("rb") as file:
                status = 1
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                time.sleep(2)
    finally:
        os._exit(status)
