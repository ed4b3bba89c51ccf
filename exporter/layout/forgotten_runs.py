"""The runs that the layout has forgotten, and how one of them is brought back from the archive.

A run is forgotten when it got no event for as long as the journal keeps entries. An event that comes even
later, such as a failure after a week of work, is merged with the run's earlier events, as if the run had
never been forgotten.

Most runs that are not stored are new, and searching for them would cost more as the archive grows. So of a
run that is forgotten a short row stays, which says that the archive has more. The runs in files whose entries
the layout has not folded get such a row before the next batch: it was off when they came, or a journal filed
them that has since lost them, or that this one is a copy of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from waybill.transport.journal import key_of_run

from .. import parquet
from ..archive import archived_files, folder_hour, read_run_ids
from ..directory import names
from ..names import EVENTS, LAYOUT, RawName, hour_of, parse_hour
from ..parquet import Covers

if TYPE_CHECKING:
    from waybill.transport.journal import Node, StateStore

    from ..rebuilding import StatesByRun

log = logging.getLogger("waybill.exporter")

KNOWN: Final = "known"
"""The state key of the ranges of entries whose runs are stored, at least as forgotten."""

_TIMED_VERSION: Final = 7
_SKEW_MS: Final = 86_400_000
"""How far a sender's clock may be ahead of the clock that stamps arrivals."""


class ForgottenRuns:
    """What the archive has of the runs of one journal.

    Args:
        store: has the layout's state.
        root: the folder with the archive.
        nodes: returns the journal's nodes.
        system_name: for entries without a stamped name.
    """

    def __init__(
        self, store: StateStore, root: Path, nodes: Callable[[], Collection[Node]], system_name: str
    ) -> None:
        self._store = store
        self._root = root
        self._nodes = nodes
        self._system_name = system_name

    def began_ms(self) -> int | None:
        """When the first archived entry arrived at the earliest, in epoch milliseconds; None without one."""
        days = (parse_hour(day, "00") for day in names(self._root / EVENTS))
        return next((hour.start_ms for hour in days if hour is not None), None)

    def missing(self, batch: RawName) -> Iterator[tuple[set[str], int, dict[str, bytes]]]:
        """The keys of the runs of archived entries that were not folded before a batch, file by file.

        There are some only if the entry before the batch was not folded under the same node. With the keys
        of a file come the instant before which its entries arrived, and the state to store with them.
        """
        known = self._known()
        nodes = {node.name for node in self._nodes()}
        is_gapless = known.has(RawName(batch.node, batch.first - 1, batch.first - 1))
        for name, path in () if is_gapless else archived_files(self._root):
            is_new = name.node == batch.node and name.first >= batch.first
            if is_new or name.node not in nodes or known.has(name):
                continue
            try:
                keys = set(map(key_of_run, read_run_ids(path)))
            except parquet.DAMAGED as error:
                log.warning("%s", parquet.unreadable(path, error, root=self._root))
                continue
            known = known.adding([name])
            yield keys, folder_hour(path).end_ms, {KNOWN: known.encode()}

    def with_batch(self, batch: RawName) -> dict[str, bytes]:
        """The state to store with a batch."""
        return {KNOWN: self._known().adding([batch]).encode()}

    def _known(self) -> Covers:
        stored = self._store.state_of(LAYOUT, [KNOWN]).get(KNOWN)
        return Covers() if stored is None else Covers.decode(stored)

    def read(self, run_ids: Collection[str], before_ms: int) -> StatesByRun:
        """What entries that arrived before an instant tell of some runs, by id.

        Runs without such entries are left out. A file that cannot be read is logged, its entries are missing.
        """
        if not run_ids:
            return {}
        # They load what rebuilds a root, which a question that knows all runs does not need.
        from ..rebuilding import GatheredRuns, PartReport, Wanted, read_folded
        from ..sources import EventsSource

        began_ms = min(_begun_ms(run_id) or 0 for run_id in run_ids)
        source = EventsSource(self._root)
        nodes = {node.name for node in self._nodes()}
        gathered, wanted = GatheredRuns(), Wanted(system_name=self._system_name)
        for name, path in archived_files(self._root, hour_of(max(began_ms - _SKEW_MS, 0))):
            if name.node not in nodes or folder_hour(path).start_ms >= before_ms:
                continue
            part = str(path)
            report = PartReport()
            read = partial(source.read, part, run_ids=run_ids, before_ms=before_ms)
            for _, states in read_folded(read, partial(source.place, part), wanted, report):
                for run_id, state in states.items():
                    gathered.add(run_id, state)
            if problem := report.damaged or report.first_unreadable:
                log.warning("%s", problem)
        return gathered.states()


def _begun_ms(run_id: str) -> int | None:
    """When a run began according to its id, in epoch milliseconds; None if the id does not show it."""
    try:
        uuid = UUID(run_id)
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == _TIMED_VERSION else None
