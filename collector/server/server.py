"""The server: the application on granian, with the home's runner beside it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import logging
import os
import signal
import socket
import ssl
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import uvloop

from waybill.lineage.levels import EVERY_MS
from waybill.marquez.links import note_collector
from waybill.transport import Journal, JournalError, SettingsError, flush, locks
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config import agreed
from waybill.transport.counting import counted
from waybill.transport.errors import reason_of
from waybill.transport.home import Home
from waybill.transport.loopback import is_loopback
from waybill.transport.runner import statuses

from ..endpoints import Readings
from ..http import BODY_TIMEOUT_S, Auth, Front, Network
from ..keys import Keys
from ..logs import sum_up
from ..metrics import Metrics, Tallies, total_of
from ..sessions import Sessions
from .measuring import record_levels
from .reconciling import Reconciling
from .repeating import Repeating
from .workers import Worker, Workers, handlers_restored

if TYPE_CHECKING:
    from granian.server.embed import Server

    from waybill.transport import Settings

    from ..app import Application
    from ..event_logs import Follower

log = logging.getLogger("waybill.collector")

CONNECTIONS_MAX: Final = 4096
"""How many connections are served at a time; further ones wait."""

IDLE_TIMEOUT_S: Final = 60.0
"""How long a connection may be without a complete request header. The server knows no difference between a
client that pauses and one that stops in the middle of a header.
"""

DRAIN_TIMEOUT_S: Final = 30.0

REQUESTS_TIMEOUT_S: Final = 30.0
"""How long open requests get to finish at a stop."""

_END_TIMEOUT_S: Final = 10.0
"""How long everything else may take at a stop, except the projections."""

_KEY_OF_ANOTHER: Final = "KEY_VALUES_MISMATCH"
"""What OpenSSL calls a key that is not the certificate's."""

_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never listened at

_M_MMAP_THRESHOLD: Final = -3
_MMAP_BYTES: Final = 4 * 2**20
_BUFFER_BYTES: Final = 64 * 2**10
"""The memory that a connection may use besides a body, mostly for its header."""
_POLL_S: Final = 0.05
_LAST_ANSWERS_S: Final = 0.5
_CHECK_EVERY_S: Final = 1.0
_RECONCILE_EVERY_S: Final = 60.0
_LEVELS_AFTER_S: Final = 10.0


def serve(
    settings: Settings,
    *,
    on_listening: Callable[[str], None] = lambda _: None,
    drain_timeout_s: float = DRAIN_TIMEOUT_S,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
    body_timeout_s: float = BODY_TIMEOUT_S,
    without_keys: bool = False,
    allowed_hosts: Collection[str] = (),
    proxies: Collection[Network] = (),
    tls: tuple[Path, Path] | None = None,
    workers: int = 1,
    follower: Follower | None = None,
) -> None:
    """Accept requests at `settings.listen` until SIGTERM or Ctrl-C.

    Open requests are then finished, and the projections get some time to catch up; the entries that they have
    not processed stay in the journal. A second signal ends it without waiting. If the end takes longer than
    all its limits together, this process exits with code 1 and prints to stderr what its threads were doing.

    Args:
        settings: the home, the address, and the settings of the runner beside the server.
        on_listening: called with the URL once requests are accepted.
        drain_timeout_s: how long the projections get at the end.
        idle_timeout_s: how long a connection may be without a complete request header.
        body_timeout_s: how long a body may take to arrive.
        without_keys: listen on addresses that other machines can reach even if there are no keys.
        allowed_hosts: answer only to requests for these host names, besides this machine's own; empty: to
            all, unless only this machine can reach the address.
        proxies: the proxies in front, whose `X-Forwarded-For` is believed.
        tls: PEM files of a certificate with its chain, and of its key; None: plain HTTP.
        workers: how many processes answer; with more than one, this one only starts and replaces them.
        follower: follows Spark's event logs in one of the processes.

    Raises:
        SettingsError: the address, the certificate or the home cannot be used, or the home's live runner uses
            other settings and these are strict.
        JournalError: the journal cannot be used.
    """
    _check_tls(tls)
    with contextlib.ExitStack() as at_end:
        at_end.enter_context(handlers_restored())
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # A `KeyboardInterrupt` in the wrong place leaves a lock of the journal held, and the end would
            # wait for it. So SIGINT ends this process as SIGTERM does.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        journal = Journal(settings.home, max_bytes=settings.journal_max_bytes, packs=True)
        at_end.enter_context(contextlib.closing(journal))
        at_end.enter_context(_only_collector(settings))
        at_end.callback(faulthandler.cancel_dump_traceback_later)
        at_end.callback(sum_up, at_end=True)
        home = Home.open(settings, journal)
        _give_back_large_blocks()
        options = _Options(idle_timeout_s, body_timeout_s, tls, without_keys, allowed_hosts, proxies)
        server = _Server(home, options, follower)
        if workers == 1:
            with handlers_restored():  # uvloop leaves its own, which accept signals and do nothing
                may_wait = uvloop.run(server.run(on_listening))
        else:
            may_wait = server.run_workers(workers, on_listening)
        if home.settings.runner == "child" and may_wait:
            _end_within(drain_timeout_s + _END_TIMEOUT_S)
            report = flush(home.settings, timeout_s=drain_timeout_s)
            left = [
                f"{counted(number, 'entry', 'entries')} for {name}"
                for name, number in report.left.items()
                if number
            ]
            if left:
                log.warning("the time is up; these stay in the journal: %s", ", ".join(left))


@contextlib.contextmanager
def _only_collector(settings: Settings) -> Iterator[None]:
    held = locks.take(settings.home, locks.COLLECTOR)
    if held is None:
        who = locks.holder(settings.home, locks.COLLECTOR)
        what = f"is served by another collector (process {who}); stop that one, or use another home"
        raise SettingsError("home", str(settings.home), settings.origins["home"], what)
    try:
        yield
    finally:
        held.release()


def _end_within(timeout_s: float) -> None:
    """End this process if it has not ended by then, whatever its threads wait for.

    The journal is safe at any moment.
    """
    faulthandler.dump_traceback_later(timeout_s, exit=True)


def _give_back_large_blocks() -> None:
    """Let glibc request each block of 4 MiB or more from the system separately (`mallopt(3)`).

    Otherwise glibc allocates such blocks on its heap once the first one has been freed, and the small blocks
    behind them keep their memory in use: 150 MB after a few large bodies. Other C libraries have no such
    rule.
    """
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)


class _Options(NamedTuple):
    idle_timeout_s: float
    body_timeout_s: float
    tls: tuple[Path, Path] | None
    without_keys: bool
    allowed_hosts: Collection[str]
    proxies: Collection[Network]


class _Server:
    def __init__(self, home: Home, options: _Options, follower: Follower | None) -> None:
        self._options = options
        self._follower = follower
        self._home = home
        self._journal = home.journal
        self._settings = settings = home.settings
        self._readings = Readings(home.journal, settings)
        self._check_due_s = 0.0
        self._metrics = Metrics()
        self._tallies: Tallies | None = None
        self._boot = str(uuid.uuid4())
        self._questions: dict[str, frozenset[str]] = {}
        self._host, self._port = _free_address(settings)
        loopback = is_loopback(self._host)
        without_keys, allowed_hosts = options.without_keys, options.allowed_hosts
        self._sessions = Sessions(home.journal)
        self._auth = Auth(
            self._metrics,
            Keys(home.journal),
            self._sessions,
            loopback=loopback,
            without_keys=without_keys,
            allowed_hosts=allowed_hosts,
            front=Front(settings.public_url, options.proxies),
        )
        if not (loopback or self._auth.keys or without_keys):
            what = (
                "can be reached by other machines, and there are no keys: create some (`waybill keys add`), "
                "listen on 127.0.0.1, or admit everybody (`--without-keys`)"
            )
            raise SettingsError("listen", settings.listen, settings.origins["listen"], what)
        name = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "https" if options.tls else "http"
        self._url = f"{scheme}://{name}:{self._port}"
        is_any = self._host in _ANY_ADDRESS
        self._url_for_users = f"{scheme}://{socket.gethostname()}:{self._port}" if is_any else self._url

    def run_workers(self, count: int, on_listening: Callable[[str], None]) -> bool:
        """Serve with several processes; False if a second signal ended it."""
        with tempfile.TemporaryDirectory(prefix="waybill-") as folder:

            def work(worker: Worker) -> None:
                self._tallies = Tallies(Path(folder), worker.number)
                self._tallies.resume(self._metrics)
                uvloop.run(self.run(lambda _: worker.on_ready(), worker))
                self._tallies.publish(self._metrics)
                sum_up(at_end=True)

            workers = Workers(count, work, self._keep_runner_if_due)
            return workers.run(lambda: self._say_where(on_listening))

    async def run(self, on_listening: Callable[[str], object], worker: Worker | None = None) -> bool:
        """Serve with this process, as the only one or as one of several workers.

        Returns:
            Whether the end may take its time; False if a second signal has asked for it.
        """
        loop = asyncio.get_running_loop()
        signals = _Signals(loop, worker)
        keeping_house = loop.create_task(self._keep_house())
        beside = list(self._beside()) if worker is None or worker.number == 0 else []
        for thread in beside:
            thread.start()
        try:
            application = self._application()
            server = _granian(application, self._host, self._port, self._options)
            if worker is not None:
                loop.add_reader(worker.life, _end_with_parent, loop, worker.life)
            serving = loop.create_task(server.serve())
            listening = loop.create_task(self._say_when_listening(on_listening))
            await asyncio.wait({serving, signals.first}, return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
            _end_within(REQUESTS_TIMEOUT_S + _END_TIMEOUT_S)
            server.stop()  # type: ignore[no-untyped-call]
            await _finish(application, serving, signals.second)
            with contextlib.suppress(asyncio.CancelledError):
                await listening
        finally:
            keeping_house.cancel()
            for thread in beside:
                thread.end()
            self._readings.close()
            self._journal.close()
        return not signals.second.done()

    async def _say_when_listening(self, on_listening: Callable[[str], object]) -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(self._host, self._port)
                break
            await asyncio.sleep(_POLL_S)
        writer.close()
        if self._tallies is None:
            await asyncio.to_thread(self._say_where, on_listening)
        else:
            on_listening(self._url)

    def _say_where(self, on_listening: Callable[[str], object]) -> None:
        """Note the address for the links in Marquez, and announce it."""
        try:
            note_collector(self._journal, self._url_for_users)
        except JournalError:
            log.exception("the address cannot be noted, so links in Marquez may be missing or out of date")
        on_listening(self._url)

    def _application(self) -> Application:
        from ..app import application_of

        application = application_of(
            self._home,
            self._auth,
            self._sessions,
            self._readings,
            self._metrics,
            tallies=self._tallies,
            body_timeout_s=self._options.body_timeout_s,
            follows=self._follower is not None,
        )
        self._questions = application.questions
        return application

    def _beside(self) -> Iterator[Repeating]:
        """What is done beside the requests, by one process."""
        yield Repeating(
            "check of deliveries", Reconciling(self._journal, self._settings).look, _RECONCILE_EVERY_S
        )
        yield Repeating("service levels", self._record_levels, EVERY_MS / 1_000, _LEVELS_AFTER_S)
        if (follower := self._follower) is not None:
            look = partial(follower.look, self._home)
            yield Repeating("check of event logs", look, follower.every_s)

    def _record_levels(self, _: Callable[[], bool]) -> None:
        served = total_of(self._metrics, self._tallies).served(self._boot, self._questions)
        record_levels(self._readings, self._journal, self._settings, served)

    async def _keep_house(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._check)
            except Exception:
                log.exception("keys, runner or metrics could not be checked; trying again later")
            await asyncio.sleep(_CHECK_EVERY_S)

    def _check(self) -> None:
        """Read keys and limit, and keep the runner running or publish the metrics for other workers."""
        sum_up()
        self._auth.read_keys()
        self._journal.max_bytes = agreed(self._journal).get("journal_max_bytes", self._journal.max_bytes)
        if self._tallies is None:
            self._keep_runner()
        else:
            self._tallies.publish(self._metrics)

    def _keep_runner_if_due(self) -> None:
        if SYSTEM_CLOCK.monotonic_s() >= self._check_due_s:
            self._check_due_s = SYSTEM_CLOCK.monotonic_s() + _CHECK_EVERY_S
            sum_up()
            try:
                self._auth.read_keys()  # for the workers that replace others
                self._keep_runner()
            except JournalError:
                log.exception("keys or runner could not be checked; trying again later")

    def _keep_runner(self) -> None:
        """Keep a runner running while a projection is behind, or the journal needs room."""
        cursors, last_seq = self._journal.cursors(), self._journal.last_seq()
        if self._journal.filled >= 1 or any(
            cursors.get(name, 0) < last_seq for name in statuses(self._journal)
        ):
            self._home.ensure_runner()


async def _finish(application: Application, serving: asyncio.Task[None], hurry: asyncio.Future[None]) -> None:
    """Let open requests finish, but not those that are still arriving.

    granian also waits for connections without a request, until their idle timeout. They get a moment, in
    which the last answers are sent.
    """
    deadline_s, quiet_s = SYSTEM_CLOCK.monotonic_s() + REQUESTS_TIMEOUT_S, 0.0
    while not (serving.done() or hurry.done()) and quiet_s < _LAST_ANSWERS_S:
        if SYSTEM_CLOCK.monotonic_s() >= deadline_s:
            break
        application.end_arriving()
        await asyncio.wait({serving, hurry}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
        quiet_s = 0.0 if application.open_requests else quiet_s + _POLL_S
    if serving.done():
        serving.result()
    elif application.open_requests:
        log.warning("open requests were cut off; none of them was acknowledged")


class _Signals:
    """The first and the second signal that tells this process to end, as futures.

    A worker has only one: its parent ends it at a second signal. If both get the first signal, as from
    systemd, and the parent passes it on, that is not a second one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, worker: Worker | None) -> None:
        self.first, self.second = loop.create_future(), loop.create_future()
        self._due = [self.first] if worker else [self.first, self.second]
        for number in (signal.SIGTERM,) if worker else (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take)

    def _take(self) -> None:
        if self._due:
            self._due.pop(0).set_result(None)


def _end_with_parent(loop: asyncio.AbstractEventLoop, life: int) -> None:
    loop.remove_reader(life)
    os.kill(os.getpid(), signal.SIGTERM)


def _granian(application: Application, host: str, port: int, options: _Options) -> Server:
    from granian.constants import HTTPModes, SSLProtocols
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    return Server(
        application,
        address=host,
        port=port,
        http=HTTPModes.http1,
        websockets=False,
        backlog=CONNECTIONS_MAX,
        backpressure=CONNECTIONS_MAX,
        http1_settings=HTTP1Settings(
            header_read_timeout=round(options.idle_timeout_s * 1000), max_buffer_size=_BUFFER_BYTES
        ),
        log_enabled=False,
        ssl_cert=options.tls[0] if options.tls else None,
        ssl_key=options.tls[1] if options.tls else None,
        ssl_protocol_min=SSLProtocols.tls12,
    )


def _check_tls(tls: tuple[Path, Path] | None) -> None:
    for name, file in zip(("tls_cert", "tls_key"), tls or (), strict=False):
        try:
            file.read_bytes()
        except OSError as error:
            raise _useless(name, file, f"cannot be read: {reason_of(error)}") from None
    if tls is None:
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*tls, password=lambda: b"")
    except (OSError, ValueError) as error:
        if getattr(error, "reason", None) == _KEY_OF_ANOTHER:
            raise _useless("tls_key", tls[1], f"is not the key of {tls[0]}") from None
        raise _useless("tls_cert", tls[0], f"cannot be used with the key {tls[1]}") from None


def _useless(name: str, file: Path, why: str) -> SettingsError:
    what = f"{why}; use PEM files without a password"
    return SettingsError(name, str(file), f"--{name.replace('_', '-')}", what)


def _free_address(settings: Settings) -> tuple[str, int]:
    """The address to listen on, as numbers.

    granian shares a port with any process that already listens there, so this checks first whether it is
    taken.
    """
    host, _, port = settings.listen.rpartition(":")
    try:
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            bound = probe.getsockname()
    except OSError as error:
        what = f"cannot be used ({error.strerror}); use another host:port"
        raise SettingsError("listen", settings.listen, settings.origins["listen"], what) from None
    return str(bound[0]), int(bound[1])
