"""A PostgreSQL with Marquez's table of events."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from postgres import running_postgres

# The table of Marquez today; a rebuild needs only the event and its time.
TABLE = """
CREATE TABLE lineage_events (
    event_time timestamptz, event jsonb, event_type text, job_name text, job_namespace text, producer text,
    run_uuid uuid, created_at timestamptz DEFAULT now(), _event_type varchar(64) DEFAULT 'RUN_EVENT'
)
"""


@contextlib.contextmanager
def marquez_database(events: Iterable[dict[str, Any]]) -> Iterator[str]:
    """The address of one with these events; tests are skipped where none can run."""
    with running_postgres() as url:
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute(TABLE)
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO lineage_events (event_time, event) VALUES (%s::timestamptz, %s::jsonb)",
                    [(event["eventTime"], json.dumps(event)) for event in events],
                )
        yield url


class ByNetwork(socketserver.ThreadingTCPServer):
    """A local port that leads to a database's socket, and notes its clients.

    Args:
        url: the address of the database, by the folder of its socket.

    Attributes:
        greetings: the first bytes that each client sent.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        (folder,) = parse_qs(urlsplit(url).query)["host"]
        self.socket_path = f"{folder}/.s.PGSQL.5432"
        self.greetings: list[bytes] = []

    @property
    def url(self) -> str:
        """The address of the same database by this port."""
        return f"postgresql://postgres@127.0.0.1:{self.server_address[1]}/postgres"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Passing(socketserver.BaseRequestHandler):
    server: ByNetwork

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as behind:
            behind.connect(self.server.socket_path)
            back = threading.Thread(target=_pass, args=(behind, self.request), daemon=True)
            back.start()
            self.server.greetings.append(_pass(self.request, behind))
            back.join()


def _pass(source: socket.socket, target: socket.socket) -> bytes:
    """Pass on what comes until its end; the first of it."""
    greeting = b""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            if len(greeting) < 1_000:
                greeting += data
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    return greeting
