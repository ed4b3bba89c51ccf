"""The transport for the OpenLineage Python client: an event is on disk when `emit` returns.

Select it by ``type: waybill.transport.WaybillTransport`` in the client's configuration; every other key is a
Waybill setting. It works alone and inside the client's ``composite`` transport.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import attr
from openlineage.client.transport.transport import Config, Transport

from .admission import depth_error
from .config import Settings
from .errors import AdmissionError
from .home import Home
from .serial import event_to_json

if TYPE_CHECKING:
    from openlineage.client.client import Event

    from .journal import FileContent

log = logging.getLogger("waybill.transport")

_CLIENT_KEYS: Final = frozenset({"type", "name", "priority"})
"""The keys that the client's own factory reads."""


@attr.define
class WaybillConfig(Config):
    """The transport's configuration: Waybill's settings, with those in the client's configuration first."""

    settings: Settings = attr.field(factory=lambda: Settings.load(goes_on=True))

    @classmethod
    def from_dict(cls, params: dict[str, Any]) -> WaybillConfig:
        """Check the client's configuration.

        Raises:
            SettingsError: a setting is unknown, or a value is invalid.
        """
        given = {name: value for name, value in params.items() if name not in _CLIENT_KEYS}
        return cls(Settings.load(given, origin="OpenLineage transport configuration", goes_on=True))


class WaybillTransport(Transport):
    """Keeps every event in the journal, and makes sure that a runner processes it.

    A backend that is down, slow or gone never affects the pipeline: the runner, a separate process, delivers
    events.

    Attributes:
        home: where the events are kept.
        settings: the home's.

    Raises:
        SettingsConflictError: the home's live runner uses other settings, and these are strict.
        JournalError: the home cannot hold a journal.
    """

    kind = "waybill"
    config_class = WaybillConfig

    def __init__(self, config: WaybillConfig) -> None:
        # OpenLineage's factory calls only this.
        self.home = Home.open(config.settings)
        self.settings = self.home.settings

    def emit(self, event: Event) -> None:
        """Keep an event; on return it is durable as the setting `durability` defines.

        One that admission refuses is kept as a reject, with the reason: see `waybill rejects`.

        Raises:
            AdmissionError: the event is refused, and the settings are strict.
            JournalError: it could not be kept, for example because the disk is full.
        """
        body = b""
        try:
            body = event_to_json(event)
            self.home.emit(body)
        except RecursionError:
            self._refuse(body, depth_error())
        except AdmissionError as error:
            self._refuse(body, error)

    def _refuse(self, body: bytes, error: AdmissionError) -> None:
        self.home.refuse(body, error)
        if self.settings.strict:
            raise error
        log.warning("an event was refused (%s); it is kept beside the others: see `waybill rejects`", error)

    def first_with(self, fingerprint: str) -> FileContent | None:
        """The first file with this content that the home knows, as ``xxh3-128:…``; None if there is none.

        Raises:
            JournalError: the journal cannot be read.
        """
        return self.home.journal.first_with(fingerprint)

    def close(self, timeout: float = -1) -> bool:
        """Make everything durable and close the home; return whether every event is durable.

        A timeout of 0 returns at once. Otherwise the only wait is for an fsync, because nothing is queued.
        """
        durable = self.wait_for_completion(timeout)
        if durable:
            self.home.close()
        return durable

    def wait_for_completion(self, timeout: float = -1) -> bool:
        """Return the same as `close`, but keep the transport open."""
        return self.home.is_durable if timeout == 0 else self.home.sync()
