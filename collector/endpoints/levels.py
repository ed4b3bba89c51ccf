"""The endpoint for service levels."""

from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING

from waybill.exporter import reading
from waybill.lineage.levels import measure, read_latest, read_plan
from waybill.transport.errors import WaybillError

from ..http import Problem, WebRequest, WebResponse, json_response

if TYPE_CHECKING:
    from waybill.lineage.levels import Levels
    from waybill.transport import Journal, Settings

    from .reading import Readings


class LevelsEndpoints:
    """Answers with the service levels as the collector has recorded them last.

    Args:
        journal: the home's, which keeps them.
        settings: the home's agreed ones.
        readings: begins the answers about the graph, if nothing was recorded yet.
    """

    def __init__(self, journal: Journal, settings: Settings, readings: Readings) -> None:
        self._journal = journal
        self._settings = settings
        self._readings = readings
        self._lock = threading.Lock()

    async def levels(self, request: WebRequest) -> WebResponse:
        """The service levels."""
        return json_response(await asyncio.to_thread(self.read, request.state.key))

    def read(self, key: str) -> Levels:
        """The levels of the last minutes; blocks.

        Args:
            key: the name of the API key that asks; empty without one.

        Raises:
            Problem: they cannot be measured, and why.
        """
        reading.allow(reading.Asker(reading.Door.HTTP, key), "slis")
        if (found := read_latest(self._journal)) is not None:
            return found
        try:
            with self._lock:
                return measure(self._readings.begin(key).answers, self._journal, read_plan(self._settings))
        except WaybillError as error:
            reason = "the service levels cannot be measured"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), reason=reason) from None
