"""Runs that the projection has not stored, looked up in the archive.

A run is forgotten when it got no event for as long as the journal keeps entries. An event that comes even
later, such as a failure after a week of work, is merged with the run's earlier events, as if the run had
never been forgotten.

Most runs that are not stored are new, and searching for them would cost more as the archive grows. So not
every file is searched for every run. There are two kinds of archive files:

- For most files, the projection has folded every entry, and has noted since then which runs it forgot. A run
  with an entry in such a file is stored, or its id is in `ForgottenRuns`.
- The stored state says nothing about the other files: the projection was off when their entries came, or they
  were filed by a journal that has since lost them, or that this one is a copy of. They are searched for every
  run that may be in them. After a few searches, the ids of a file's runs are cached for the life of the
  process, so that the file is not opened again for every batch of a long backfill.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Set as AbstractSet
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

from waybill.facets import UNREADABLE, RunEvent, decode_event, observe
from waybill.transport.journal import Entry, Kind, Node

from .. import parquet
from ..archive import archived_files, folder_hour, read_entries, read_run_ids
from ..names import hour_of
from ..rebuilding import GatheredRuns, StatesByRun
from .forgotten_runs import ForgottenRuns

if TYPE_CHECKING:
    from ..parquet import Covers

log = logging.getLogger("waybill.exporter")

_VERSION: Final = 7
_SKEW_MS: Final = 86_400_000
"""How far a sender's clock may be ahead of the clock that stamps arrivals."""
_LOOKS: Final = 4
"""After this many searches of a file, its ids are read and cached."""
_READ_AT_ONCE: Final = 20_000
"""How many ids a look-up reads before it stops after the current file: no batch waits for all of them."""
_REMEMBERED_MAX: Final = 4_000_000
"""How many ids are cached, at about 7 bytes each; further files are searched each time."""


class ArchivedRuns:
    """Looks up runs among the archived entries of one journal.

    Args:
        root: the folder with the archive.
        nodes: returns the journal's nodes.
        system_name: for entries without a stamped name.
        filed: returns the ranges whose files contain entries that this journal has had under their numbers.
        folded_from: returns the first entry from which on the stored state has folded every entry and noted
            the runs that it forgot.
    """

    def __init__(
        self,
        root: Path,
        nodes: Callable[[], Collection[Node]],
        system_name: str,
        *,
        filed: Callable[[], Covers],
        folded_from: Callable[[], int],
    ) -> None:
        self._root = root
        self._nodes = nodes
        self._system_name = system_name
        self._filed = filed
        self._folded_from = folded_from
        self._read_files = _ReadFiles()

    def began_ms(self) -> int | None:
        """The earliest possible arrival of an archived entry, in epoch milliseconds."""
        for _, path in archived_files(self._root):
            return folder_hour(path).start_ms
        return None

    def of(self, before_ms: Mapping[str, int], forgotten: AbstractSet[str]) -> StatesByRun:
        """Fold the entries of some runs, by id, that arrived before a run's instant, in epoch milliseconds.

        `forgotten` are the runs that the stored state may have forgotten. Runs without any entry are left
        out. A file that cannot be read is logged, and its entries are missing.
        """
        nodes, folded_from = {node.name for node in self._nodes()}, self._folded_from()
        # With a single node from the first entry on, there is no file of the other kind to search.
        asked = forgotten if folded_from == 1 and len(nodes) == 1 else before_ms.keys()
        if not asked:
            return {}
        filed = self._filed()
        began = sorted((max((begun_ms(run_id) or 0) - _SKEW_MS, 0), run_id) for run_id in asked)
        first, last = hour_of(began[0][0]), hour_of(max(before_ms[run_id] for run_id in asked))
        runs = GatheredRuns()
        wanted: set[str] = set()
        in_read_files = self._read_files.among(asked)
        # The files are in order of their hours, and no file from before a run began contains it.
        for name, path in archived_files(self._root, first, last):
            hour = folder_hour(path)
            while len(wanted) < len(began) and began[len(wanted)][0] < hour.end_ms:
                wanted.add(began[len(wanted)][1])
            is_folded = name.first >= folded_from and filed.has(name)
            is_known = is_folded or self._read_files.has(path)
            run_ids = wanted & (forgotten if is_folded else in_read_files) if is_known else wanted
            if name.node not in nodes or not run_ids:
                continue
            try:
                if not is_known:
                    run_ids = self._read_files.look(path, run_ids)
                for entry in chain.from_iterable(read_entries(path, run_ids=run_ids)):
                    if entry.kind is Kind.OPENLINEAGE:
                        self._add(runs, entry, before_ms)
            except parquet.DAMAGED as error:
                log.warning("%s", parquet.unreadable(path, error, root=self._root))
        return runs.states()

    def _add(self, runs: GatheredRuns, entry: Entry, before_ms: Mapping[str, int]) -> None:
        try:
            event = decode_event(entry.body)
            if isinstance(event, RunEvent) and entry.received_ms < before_ms[event.run.runId]:
                state = observe(event, system_name=entry.system_name or self._system_name)
                runs.add(state.run_id, None if state.faceted else state)
        except UNREADABLE:
            log.exception("entry %d of the archive cannot be read and is left out", entry.seq)


class _ReadFiles:
    """The run ids of files that were searched often."""

    def __init__(self) -> None:
        self._rows: dict[str, bytes] = {}
        self._ids = ForgottenRuns(self._rows_of, lambda: None)
        self._count = 0
        self._left = 0
        self._files: set[Path] = set()
        self._looks: Counter[Path] = Counter()

    def among(self, run_ids: Collection[str]) -> set[str]:
        """Begin a look-up; return the runs that may be in any of the files."""
        self._left = _READ_AT_ONCE
        return self._ids.among(run_ids)

    def has(self, path: Path) -> bool:
        """Whether the ids of a file are cached."""
        return path in self._files

    def look(self, path: Path, run_ids: set[str]) -> set[str]:
        """The runs that another file may contain; raises as `read_run_ids` does."""
        self._looks[path] += 1
        if self._looks[path] < _LOOKS or self._left <= 0 or self._count >= _REMEMBERED_MAX:
            return run_ids
        found = read_run_ids(path)
        self._ids.add(found, 0, self._rows, [])
        self._count += len(found)
        self._left -= len(found)
        self._files.add(path)
        del self._looks[path]
        return run_ids & found

    def _rows_of(self, keys: Collection[str]) -> dict[str, bytes]:
        return {key: self._rows[key] for key in keys if key in self._rows}


def begun_ms(run_id: str) -> int | None:
    """When a run began according to its id, in epoch milliseconds; None if the id does not show it."""
    try:
        uuid = UUID(run_id)
    except ValueError:
        return None
    return uuid.int >> 80 if uuid.version == _VERSION else None
