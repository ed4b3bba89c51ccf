"""Which backends the settings name, each with a delivery of its own."""

from __future__ import annotations

import functools
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from waybill.marquez.backend import LINEAGE_PATH, Answer, Backend, KafkaTarget, Verdict
from waybill.marquez.delivery import CONNECTIONS, Delivery
from waybill.marquez.readback import EventReader, MarquezReadError
from waybill.marquez.summaries import SummaryRules
from waybill.transport.config import MARQUEZ, obey
from waybill.transport.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from waybill.marquez.backend import Target
    from waybill.transport.config import BackendSetting, Detail, Settings
    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.marquez")

_PATH_OF: Final = {
    "marquez": LINEAGE_PATH,
    "datahub": "/openapi/openlineage/api/v1/lineage",
    "openmetadata": "/api/v1/openlineage/lineage",
}
"""Where each backend takes OpenLineage events, as its documentation says."""

_ANY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, never listened at


def open_deliveries(journal: Journal, settings: Settings) -> list[Delivery]:
    """The projections of the entry point ``marquez``: one for each backend, under its name."""

    def delivery(name: str, target: Target, detail: Detail, connections: int, *, draws: bool) -> Delivery:
        rules = SummaryRules(
            detail=detail, collector_url=collector_url(settings), backlog=settings.detail_backlog
        )
        return Delivery(journal, target, name=name, connections=connections, draws=draws, summaries=rules)

    deliveries = []
    if settings.marquez_url is not None:
        read_key = functools.partial(_key_now, journal, MARQUEZ)
        backend = Backend(settings.marquez_url, settings.marquez_api_key, read_key=read_key)
        deliveries.append(delivery(MARQUEZ, backend, settings.marquez_detail, CONNECTIONS, draws=True))
    for one in settings.backends:
        target = _target(one, functools.partial(_key_now, journal, one.name))
        # Others neither say that they take JobEvents nor that they are slow.
        is_marquez = one.backend == "marquez"
        detail = one.detail or ("auto" if is_marquez else "every")
        # Lines of a file have the order of the journal; a server gets several runs at a time.
        connections = 1 if one.backend in {"console", "file"} else CONNECTIONS
        deliveries.append(delivery(one.name, target, detail, connections, draws=is_marquez))
    return deliveries


def open_reader(settings: Settings, name: str = MARQUEZ) -> EventReader:
    """What reads a backend's events back.

    Raises:
        MarquezReadError: no backend has this name, or it is none that gives them back.
    """
    if name == MARQUEZ and settings.marquez_url is not None:
        return EventReader(settings.marquez_url, settings.marquez_api_key)
    for one in settings.backends:
        if one.name == name and one.backend == "marquez":
            return EventReader(one.endpoint, one.api_key)
    raise MarquezReadError(
        f"{name} is no Marquez that the settings name, and others give no events back; set marquez_url, or "
        "give the name of one in backends"
    )


def collector_url(settings: Settings) -> str:
    """Where users reach the collector: as the settings say, or where it listens on this host."""
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    host, _, port = settings.listen.rpartition(":")
    return f"http://{socket.gethostname() if host.strip('[]') in _ANY_ADDRESS else host}:{port}"


class FileTarget:
    """A file that gets each event as a line, durable before it counts as delivered.

    Args:
        path: the file; it is appended to, and made anew when it is gone, so that it may be rotated.
    """

    def __init__(self, path: Path) -> None:
        self.shown_url = str(path)
        self.to_correct = ("its endpoint in backends", "")
        self._path = path

    def deliver(self, body: bytes) -> Answer:
        """Append one event."""
        try:
            with self._path.open("ab") as file:
                file.write(one_json_line(body))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return Answer(verdict=Verdict.AWAY, words=error.strerror or str(error))
        return Answer(verdict=Verdict.DELIVERED)

    def renewed(self) -> bool:
        """A file has no key."""
        return False

    def close(self) -> None:
        """No file is open between two events."""


class ConsoleTarget:
    """The output of the process that works the projections: that of a child goes to ``runner.log``."""

    shown_url = "the console"
    to_correct = ("backends", "")

    def deliver(self, body: bytes) -> Answer:
        """Print one event as a line."""
        try:
            sys.stdout.buffer.write(one_json_line(body))
            sys.stdout.flush()
        except OSError as error:
            return Answer(verdict=Verdict.AWAY, words=error.strerror or str(error))
        return Answer(verdict=Verdict.DELIVERED)

    def renewed(self) -> bool:
        """The console has no key."""
        return False

    def close(self) -> None:
        """The output is the process's."""


def one_json_line(body: bytes) -> bytes:
    """An event on a line of its own: within JSON's texts no line can end, and elsewhere the end is space."""
    return body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"


def _key_now(journal: Journal, name: str) -> str | None:
    """A backend's key as the settings' files have it by now; None where they have none.

    The environment of a process stays as it is, so what stands there is not asked for.
    """
    where_files_are = {name: os.environ[name] for name in ("XDG_CONFIG_HOME",) if name in os.environ}
    try:
        settings = obey(journal, env=where_files_are)
    except SettingsError as error:
        log.warning("whether %s has another key cannot be seen: %s", name, error)
        return None
    if name == MARQUEZ and settings.marquez_url is not None:
        return settings.marquez_api_key
    return next((one.api_key for one in settings.backends if one.name == name), None)


def _target(one: BackendSetting, read_key: Callable[[], str | None]) -> Target:
    if one.backend == "console":
        return ConsoleTarget()
    if one.backend == "file":
        return FileTarget(Path(one.endpoint))
    if one.backend == "kafka":
        return KafkaTarget(one.endpoint, one.options, name=one.name)
    parts = urlsplit(one.endpoint)
    url, path = one.endpoint, _PATH_OF.get(one.backend)
    if path is None:
        # Nothing is known of it: an address with a path is where it wants its events.
        path = parts.path if parts.path.strip("/") else LINEAGE_PATH
        url = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    of = f"of {one.name} in backends"
    names = (f"the endpoint {of}", f"the api_key {of}")
    return Backend(url, one.api_key, path=path, to_correct=names, read_key=read_key)
