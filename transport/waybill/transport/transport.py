"""The transport for the OpenLineage Python client: an event is in the journal when `emit` returns.

Chosen by ``type: waybill.transport.WaybillTransport`` in the client's configuration; every other key is one
of Waybill's settings. Works alone and inside the client's ``composite`` transport.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import attr
from openlineage.client.transport.transport import Config, Transport

from waybill.transport.admission import Redaction
from waybill.transport.config import Settings
from waybill.transport.errors import AdmissionError, JournalError
from waybill.transport.journal import Journal, Kind, Spool, open_spool
from waybill.transport.runner import Supervisor
from waybill.transport.serial import event_to_json

if TYPE_CHECKING:
    from openlineage.client.client import Event

log = logging.getLogger("waybill.transport")

_CLIENT_KEYS: Final = frozenset({"type", "name", "priority"})
"""Keys that the client's own factory reads."""


@attr.define
class WaybillConfig(Config):
    """The transport's configuration: Waybill's settings, checked.

    Attributes:
        settings: from the client's configuration, then the environment, then the settings files.
    """

    settings: Settings = attr.field(factory=Settings.load)

    @classmethod
    def from_dict(cls, params: dict[str, Any]) -> WaybillConfig:
        """Check what the client's configuration says.

        Raises:
            SettingsError: an unknown setting or a value that cannot be.
        """
        given = {name: value for name, value in params.items() if name not in _CLIENT_KEYS}
        return cls(Settings.load(given, origin="OpenLineage transport configuration"))


class WaybillTransport(Transport):
    """Keeps every event in the journal and sees to it that a runner projects it.

    A backend that is down, slow or gone never reaches the pipeline: delivery is the runner's work, in a
    process of its own.

    Args:
        config: the settings to work by.

    Raises:
        SettingsConflictError: the home's live runner works with other settings.
        JournalError: the home cannot hold a journal.
    """

    kind = "waybill"
    config_class = WaybillConfig

    def __init__(self, config: WaybillConfig) -> None:
        """Open the journal and agree with the home's runner, starting one where there is none."""
        settings = config.settings
        self._journal = Journal(settings.home, max_bytes=settings.journal_max_bytes)
        self._spool = open_spool(self._journal) if settings.durability == "process" else None
        self._keeper = Supervisor(self._journal, settings)
        self.settings = self._keeper.settings
        self._redaction = Redaction(self.settings.redact)

    def emit(self, event: Event) -> None:
        """Keep an event; it is durable on return, as the setting `durability` says.

        Raises:
            AdmissionError: the event breaks the OpenLineage specification where a backend would refuse it.
            JournalError: it could not be kept, for example because the disk is full.
        """
        try:
            body = event_to_json(event)
        except RecursionError:
            raise AdmissionError("$", "the event is nested too deeply", "send flatter facets") from None
        body = self._redaction.admit(body)
        (self._spool or self._journal).append(Kind.OPENLINEAGE, body, self.settings.system_name)
        self._keeper.keep()

    def close(self, timeout: float = -1) -> bool:
        """Make durable what is not yet; no event is queued in memory, so there is nothing else to wait for.

        Args:
            timeout: seconds; 0 answers at once.

        Returns:
            Whether every event is durable.
        """
        durable = self.wait_for_completion(timeout)
        if durable:
            if self._spool is not None:
                self._close_spool(self._spool)
            self._journal.close()
        return durable

    def _close_spool(self, spool: Spool) -> None:
        try:
            spool.close()
        except JournalError:
            log.exception("events stay in the spool of %s and will be taken from there", self._journal.home)

    def wait_for_completion(self, timeout: float = -1) -> bool:
        """The same answer as `close`, and the transport stays in use."""
        if self._spool is None:
            return True
        if timeout != 0:
            try:
                self._spool.sync()
            except JournalError:
                log.exception(
                    "events wait in the spool of %s and will be taken from there", self._journal.home
                )
        return not self._spool.unsynced
