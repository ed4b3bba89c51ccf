"""``python -m waybill.transport HOME [DESCRIPTOR]``: run a home's projections until nothing is left to do."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from . import locks, process
from .config import agreed, obey
from .journal import Journal
from .runner import IDLE_S, Runner

log = logging.getLogger("waybill.runner")

_BELOW_PIPELINES = 5


def main(home: Path, descriptor: int | None = None, *, idle_s: float = IDLE_S) -> int:
    """Be the runner of a home; return 0 even if another process already is.

    If the process that started this one has reserved the runner's lease, it passes the descriptor.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    os.nice(_BELOW_PIPELINES)
    process.prepare()
    stops: list[int] = []  # an event has a lock, which a second signal would wait for within the first
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))

    def must_end() -> bool:
        return bool(stops) or locks.is_wanted(home)

    lease = locks.take(home) if descriptor is None else locks.inherit(descriptor)
    while lease is not None and Journal.exists(home):  # opening the journal would recreate the home
        with contextlib.closing(Journal(home)) as journal:
            if not agreed(journal):
                # Its program has only just made it, and starts a runner once the settings are agreed.
                lease.release()
                return 0
            try:
                last_seq = _work(journal, lease, idle_s, must_end)
            finally:
                lease.release()
            # An emitter that checked before the release saw a runner and started none.
            is_done = must_end() or not home.is_dir() or journal.last_seq() <= last_seq
        lease = None if is_done else locks.take(home)
    return 0


def _work(journal: Journal, lease: locks.Lease, idle_s: float, must_end: Callable[[], bool]) -> int:
    """Run by the agreed settings, restarting when they change; return the last known entry."""
    while True:
        is_changed = _noticing_change(journal)
        runner = Runner(journal, obey(journal), lease=lease.descriptor)
        last_seq = runner.run(idle_s=idle_s, until=partial(_any, must_end, is_changed))
        if must_end() or not is_changed():
            return last_seq
        log.info("the agreed settings have changed and are now used")


def _any(*conditions: Callable[[], bool]) -> bool:
    return any(condition() for condition in conditions)


def _noticing_change(journal: Journal) -> Callable[[], bool]:
    """Make a function that reports whether the agreed settings have changed; never for a deleted home."""
    values = agreed(journal)
    return lambda: journal.home.is_dir() and agreed(journal) != values


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
