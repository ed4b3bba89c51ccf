"""A collector within the tests' own process: its application, asked without a server and sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from served import Asking, Reply

from waybill.collector import Keys
from waybill.collector.app import application_of
from waybill.collector.endpoints import Readings
from waybill.collector.http import BODY_TIMEOUT_S, Auth, Front, Network
from waybill.collector.metrics import Metrics
from waybill.collector.sessions import Sessions
from waybill.marquez.links import note_collector
from waybill.transport import Journal, Settings
from waybill.transport.home import Home

if TYPE_CHECKING:
    from concurrent.futures import Future

HOST = "localhost:8090"


class Headers(dict[str, str]):
    """Headers as granian has them."""

    def get_all(self, name: str) -> list[str]:
        return [self[name]] if name in self else []


class Scope:
    """What granian says of a request."""

    authority = None
    client = "127.0.0.1:40000"
    scheme = "http"

    def __init__(self, method: str, address: str, headers: dict[str, str]) -> None:
        self.method = method
        path, _, self.query_string = address.partition("?")
        self.path = unquote(path)
        self.headers = Headers({"host": HOST} | {name.lower(): value for name, value in headers.items()})


class Exchange:
    """A body that is there whole, and a client that waits for its answer, or goes away."""

    def __init__(self, body: bytes = b"") -> None:
        self._body = body
        self.gone = asyncio.Event()
        self.reply = Reply(0, {}, b"")

    async def __call__(self) -> bytes:
        return self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body

    async def client_disconnect(self) -> None:
        await self.gone.wait()

    def response_bytes(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        length = ("content-length", str(len(body)))
        self.reply = Reply(status, {name.lower(): value for name, value in [*headers, length]}, body)

    def response_stream(self, status: int, headers: Iterable[tuple[str, str]]) -> Exchange:
        self.reply = Reply(status, {name.lower(): value for name, value in headers}, b"")
        return self

    async def send_bytes(self, data: bytes) -> None:
        self.reply = self.reply._replace(body=self.reply.body + data)


class Inside(Asking):
    """Asks the application of a home, which has no runner; asked as a `Collector` is.

    Args:
        home: the home.
        proxies: those that are believed.
        allowed_hosts: the names that it is asked by, besides this machine's.
        loopback: whether only this machine would reach it.
        without_keys: whether everybody is let in.
        body_timeout_s: how long a body may take to arrive.
        vfs: the name of what SQLite has as its file system.
        settings: those of the home.
    """

    def __init__(
        self,
        home: Path,
        *,
        proxies: Iterable[Network] = (),
        allowed_hosts: Iterable[str] = (),
        loopback: bool = True,
        without_keys: bool = False,
        body_timeout_s: float = BODY_TIMEOUT_S,
        vfs: str | None = None,
        **settings: object,
    ) -> None:
        given = {"home": home, "runner": "none", "system_name": "tests", **settings}
        self.home = home
        self.url = f"http://{HOST}"
        chosen = Settings.load(given, origin="tests", env={}, cwd=home.parent)
        self.journal = Journal(home, max_bytes=chosen.journal_max_bytes, packs=True, vfs=vfs)
        opened = Home.open(chosen, self.journal)
        self.metrics, sessions = Metrics(), Sessions(self.journal)
        self._readings = Readings(self.journal, opened.settings)
        self.auth = Auth(
            self.metrics,
            Keys(self.journal),
            sessions,
            loopback=loopback,
            without_keys=without_keys,
            allowed_hosts=list(allowed_hosts),
            front=Front(opened.settings.public_url, list(proxies)),
        )
        self.application = application_of(
            opened, self.auth, sessions, self._readings, self.metrics, body_timeout_s=body_timeout_s
        )
        note_collector(self.journal, self.url)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        sent = body.encode() if isinstance(body, str) else body or b""
        length = {"Content-Length": str(len(sent))} if sent else {}
        return self.begin(Scope(method, path, length | (headers or {})), Exchange(sent)).result(60)

    def begin(self, scope: Any, exchange: Any) -> Future[Reply]:  # noqa: ANN401 - as granian's
        """Ask, and do not wait for the answer."""

        async def answer() -> Reply:
            await self.application.__rsgi__(scope, exchange)
            reply: Reply = exchange.reply
            return reply

        return asyncio.run_coroutine_threadsafe(answer(), self._loop)

    def leave(self, exchange: Exchange) -> None:
        """Let the client of a question go away."""
        self._loop.call_soon_threadsafe(exchange.gone.set)

    def end_arriving(self) -> None:
        """End the requests whose bodies are still arriving, as a collector does that ends."""
        self._loop.call_soon_threadsafe(self.application.end_arriving)

    def look_at_keys(self) -> None:
        """Read the keys again, as a collector does once a second."""
        self.auth.read_keys()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._readings.close()
        self.journal.close()
