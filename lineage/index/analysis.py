"""Having the analyzers read what the index has noted for them, beside everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..analyzers import Worker

if TYPE_CHECKING:
    import apsw

    from waybill.transport.clock import Clock

    from ..graph import GraphTables

POLL_S: Final = 0.1
"""After this time, an index looks again whether they have found something."""

IDLE_S: Final = 30.0
"""So long the process is kept after it was used."""

FINISH_S: Final = 10.0
"""So long may they go on when the runner ends; the next one continues."""

_AT_ONCE: Final = 8


class Analysis:
    """Has events analyzed in another process, which is started for the first of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._worker: Worker | None = None
        self._used_s = 0.0

    def step(self, connection: apsw.Connection, graph: GraphTables) -> float | None:
        """Add what has been found, and have more events read.

        Returns after how many seconds it has to be called again: `POLL_S` if some are being read; None: when
        there are more.
        """
        if self._worker is not None and (results := self._worker.poll()):
            with connection:
                graph.add_findings(results)
        if self._worker is not None and self._worker.pending:
            return POLL_S
        if waiting := graph.analyses.list_waiting(_AT_ONCE):
            self._worker, self._used_s = self._worker or Worker(), self._clock.monotonic_s()
            for key, event in waiting:
                self._worker.submit(str(key), event, {})
            return POLL_S
        left_s = self._used_s + IDLE_S - self._clock.monotonic_s()
        if self._worker is None or left_s > 0:
            return None if self._worker is None else left_s
        self.close()
        return None

    def finish(self, connection: apsw.Connection, graph: GraphTables) -> None:
        """Have the rest read, as far as there is time."""
        until_s = self._clock.monotonic_s() + FINISH_S
        while self.step(connection, graph) == POLL_S and self._clock.monotonic_s() < until_s:
            self._clock.sleep(POLL_S / 10)

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
