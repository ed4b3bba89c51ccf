"""A collector as users have it: `waybill serve` in a process of its own, over real connections."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from events import RUN_EVENT, members

from waybill.transport import Journal

PROGRAM = (str(Path(sys.executable).parent / "waybill"),)
JSON = {"Content-Type": "application/json"}
DID = "01a1fd6a-9e75-7d78-870f-24897efac4a4"
COMPLETED_MS = 1_769_860_800_000


def event(**changes: object) -> bytes:
    """An OpenLineage event."""
    return json.dumps(members(DID, "START", schemaURL=RUN_EVENT) | changes).encode()


def own(mark: object) -> bytes:
    """An event that no other test sends."""
    return event(producer=f"https://example.org/{mark}")


def record(**changes: object) -> dict[str, object]:
    """A provenance record as DeltaFi sends it."""
    whole = {
        "did": DID,
        "systemName": "edge",
        "dataSource": "sftp-in",
        "filename": "orders.csv",
        "transforms": ["decompress", "enrich"],
        "dataSink": "lake",
        "finalState": "COMPLETE",
        "created": COMPLETED_MS - 1_000,
        "completed": COMPLETED_MS,
    }
    return whole | changes


class Reply(NamedTuple):
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - any JSON value
        return json.loads(self.body)


class Asking:
    """Something that answers as a collector does.

    Attributes:
        home: its home.
        url: its address.
    """

    home: Path
    url: str

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        raise NotImplementedError  # a process is asked through sockets, the application inside the tests

    def post(self, path: str, body: bytes, headers: dict[str, str] = JSON) -> Reply:
        return self.ask("POST", path, body, headers)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return self.ask("GET", path, None, headers)

    def bodies(self) -> list[bytes]:
        """What the journal holds."""
        with contextlib.closing(Journal(self.home)) as journal:
            return [entry.body for entry in journal.read(0, limit=1_000_000, max_bytes=2**40)]


class Collector(Asking):
    """A running `waybill serve`."""

    def __init__(self, home: Path, *options: str) -> None:
        own = ("--home", str(home), "--listen", "127.0.0.1:0", "--system-name", "tests")
        self.home = home
        self.process = subprocess.Popen(
            [*PROGRAM, "serve", *own, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().split()
        assert said[:2] == ["listening", "at"], self.process.communicate()[1]
        self.url = said[2].rstrip(",")
        self.address = self.url.partition("//")[2]

    @property
    def peak_bytes(self) -> int:
        """The most memory that it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        (peak,) = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM")]
        return peak

    def connect(self, timeout_s: float = 30) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address, timeout=timeout_s)

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        with contextlib.closing(self.connect()) as connection:
            return reply_of(connection, method, path, body, headers)

    def stop(self) -> tuple[int, str]:
        """Exit code and log of a server that SIGTERM ends."""
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@contextlib.contextmanager
def without_runner(home: Path, *options: str) -> Iterator[Collector]:
    """A collector that is killed in the end."""
    collector = Collector(home, "--runner", "none", *options)
    try:
        yield collector
    finally:
        collector.process.kill()
        collector.process.communicate()


def reply_of(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | str | None = None,
    headers: dict[str, str] | None = None,
) -> Reply:
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    found = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, found, response.read())


def status_of(collector: Collector, head: str) -> int:
    """The status of the answer to a request that no library would send."""
    host, _, port = collector.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])
