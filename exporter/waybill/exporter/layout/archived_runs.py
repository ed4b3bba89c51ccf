"""What the archive knows of runs that the projection has forgotten.

A run is forgotten when no event of it came for as long as the journal keeps its entries. An event that comes
later still, such as a failure after a week of work, is merged with what came before it, as if the run had
never been forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Final
from uuid import UUID

from waybill.exporter import parquet
from waybill.exporter.archive import archived_files, read_entries
from waybill.exporter.names import Hour, hour_of
from waybill.exporter.rebuilding import GatheredRuns, StatesByRun
from waybill.facets import UNREADABLE, RunEvent, decode_event, observe
from waybill.transport.journal import Entry, Kind, Node

log = logging.getLogger("waybill.exporter")

_VERSION: Final = 7
_SKEW_MS: Final = 86_400_000
"""How far a host's clock may be ahead of the one that its events arrive by."""


class ArchivedRuns:
    """Looks up runs among the archived entries of one journal, given by its nodes."""

    def __init__(self, root: Path, nodes: Callable[[], Iterable[Node]], system_name: str) -> None:
        self._root = root
        self._nodes = nodes
        self._system_name = system_name

    def of(self, before_ms: Mapping[str, int]) -> StatesByRun:
        """Fold the entries of some runs, by id, that arrived before an instant each, in epoch milliseconds.

        A run without any is left out. A file that cannot be read is logged, and its entries are missing.
        """
        began = sorted((max((begun_ms(run_id) or 0) - _SKEW_MS, 0), run_id) for run_id in before_ms)
        first, last = hour_of(began[0][0]), hour_of(max(before_ms.values()))
        runs = GatheredRuns()
        nodes = {node.name for node in self._nodes()}
        wanted: set[str] = set()
        # The files come in order of their hours, and a run is in none from before it began.
        for name, path in archived_files(self._root, first, last):
            hour = Hour(path.parent.parent.name, path.parent.name)
            while len(wanted) < len(began) and began[len(wanted)][0] < hour.end_ms:
                wanted.add(began[len(wanted)][1])
            if name.node not in nodes or not wanted:
                continue
            try:
                for entry in chain.from_iterable(read_entries(path, run_ids=wanted)):
                    if entry.kind is Kind.OPENLINEAGE:
                        self._add(runs, entry, before_ms)
            except parquet.DAMAGED as error:
                log.warning("%s", parquet.unreadable(path, error))
        return runs.states()

    def _add(self, runs: GatheredRuns, entry: Entry, before_ms: Mapping[str, int]) -> None:
        try:
            event = decode_event(entry.body)
            if isinstance(event, RunEvent) and entry.received_ms < before_ms[event.run.runId]:
                state = observe(event, system_name=entry.system_name or self._system_name)
                runs.add(state.run_id, None if state.faceted else state)
        except UNREADABLE:
            log.exception("entry %d of the archive cannot be read, and is left out", entry.seq)


def begun_ms(run_id: str) -> int | None:
    """When a run began according to its id, in epoch milliseconds; None where the id does not tell."""
    try:
        uuid = UUID(run_id)
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == _VERSION else None
