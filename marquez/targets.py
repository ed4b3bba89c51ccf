"""The backends in the settings, each with its own delivery."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from waybill.facets.context import LINEAGE_PATH
from waybill.transport.config import MARQUEZ, BackendSetting, obey
from waybill.transport.errors import NotFoundError, SettingsError

from .backend import Answer, Backend, Correction, KafkaTarget, Target, Verdict, marquez_settings
from .delivery import CONNECTIONS, Delivery
from .readback import EventReader
from .summaries import SummaryRules

if TYPE_CHECKING:
    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

log = logging.getLogger("waybill.marquez")

_PATH_OF: Final = {
    "marquez": LINEAGE_PATH,
    "datahub": "/openapi/openlineage/api/v1/lineage",
    "openmetadata": "/api/v1/openlineage/lineage",
}
"""The path at which each backend accepts OpenLineage events, according to its documentation."""


def open_deliveries(journal: Journal, settings: Settings) -> list[Delivery]:
    """The projections of the entry point ``marquez``: one for each backend, under its name."""
    deliveries: list[Delivery] = []
    for name, one in _backends(settings).items():
        # Other backends may not accept JobEvents, and are not known to be slow.
        is_marquez = one.backend == "marquez"
        rules = SummaryRules(
            detail=one.detail or ("auto" if is_marquez else "every"),
            public_url=settings.public_url,
            backlog=settings.detail_backlog,
        )
        target = _target(one, settings, functools.partial(_key_now, journal, name))
        # Lines of a file are in journal order; a server gets several runs at a time.
        connections = 1 if isinstance(target, _LineTarget) else CONNECTIONS
        deliveries.append(
            Delivery(journal, target, name=name, connections=connections, draws=is_marquez, summaries=rules)
        )
    return deliveries


def open_reader(settings: Settings, name: str = MARQUEZ) -> EventReader:
    """Open a reader of a backend's events; a `NotFoundError` says that it cannot be read from."""
    one = _backends(settings).get(name)
    if one is None or one.backend != "marquez":
        raise NotFoundError(
            f"{name} is not a Marquez in the settings, and other backends do not return events; write "
            "`marquez_url: URL` into waybill.yaml, or use the name of one in backends"
        )
    return EventReader(one.endpoint, one.api_key)


def _backends(settings: Settings) -> dict[str, BackendSetting]:
    """The backends by name, the one of ``marquez_url`` first."""
    backends = {one.name: one for one in settings.backends}
    if settings.marquez_url is None:
        return backends
    marquez = BackendSetting(
        backend="marquez",
        name=MARQUEZ,
        endpoint=settings.marquez_url,
        api_key=settings.marquez_api_key,
        detail=settings.marquez_detail,
    )
    return {MARQUEZ: marquez} | backends


class _LineTarget(Target):
    """Writes each event as a line, to a file or to the output of the runner's process.

    A file has the event durably before it counts as delivered, and is created again when it is missing, so
    that it may be rotated. The output of a child process goes to ``runner.log``.
    """

    def __init__(self, path: Path | None) -> None:
        self.shown_url = "the console" if path is None else str(path)
        self.to_correct = (
            Correction("backends" if path is None else "its endpoint in backends"),
            Correction(""),
        )
        self._path = path

    def deliver(self, body: bytes) -> Answer:
        """Write one event."""
        # JSON strings never contain line breaks, and between tokens they are white space.
        line = body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
        try:
            if self._path is None:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
            else:
                with self._path.open("ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            return Answer(verdict=Verdict.AWAY, words=error.strerror or str(error))
        return Answer(verdict=Verdict.DELIVERED)

    def close(self) -> None:
        """Nothing is open between two events."""


def _key_now(journal: Journal, name: str) -> str | None:
    """A backend's current key in the settings files; None if they have none.

    The environment is left out: that of a running process does not change.
    """
    # Only the environment tells the folder of the settings files.
    environment = {name: os.environ[name] for name in ("XDG_CONFIG_HOME",) if name in os.environ}
    try:
        settings = obey(journal, env=environment)
    except SettingsError as error:
        log.warning("cannot check whether %s has another key: %s", name, error)
        return None
    one = _backends(settings).get(name)
    return None if one is None else one.api_key


def _target(one: BackendSetting, settings: Settings, read_key: Callable[[], str | None]) -> Target:
    if one.backend in {"console", "file"}:
        return _LineTarget(Path(one.endpoint) if one.backend == "file" else None)
    if one.backend == "kafka":
        return KafkaTarget(one.endpoint, one.options, name=one.name)
    parts = urlsplit(one.endpoint)
    url, path = one.endpoint, _PATH_OF.get(one.backend)
    if path is None:
        # Nothing is known about it: if its address has a path, events go there.
        path = parts.path if parts.path.strip("/") else LINEAGE_PATH
        url = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    to_correct = marquez_settings(settings.home)
    if one in settings.backends:
        to_correct = (
            Correction(f"the endpoint of {one.name} in backends"),
            Correction(f"the api_key of {one.name} in backends"),
        )
    return Backend(url, one.api_key, path=path, to_correct=to_correct, read_key=read_key)
