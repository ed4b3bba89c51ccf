"""``python -m waybill.transport HOME [DESCRIPTOR]``: run a home's projections until nothing is left to do."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from waybill.transport import locks, process
from waybill.transport.config import obey
from waybill.transport.journal import Journal, waiting
from waybill.transport.runner import IDLE_S, Runner

_BELOW_PIPELINES = 5


def main(home: Path, descriptor: int | None = None, *, idle_s: float = IDLE_S) -> int:
    """Be the runner of a home; 0 also if another process is.

    The process that started this one may have reserved the runner's lease: then it gives its descriptor.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    os.nice(_BELOW_PIPELINES)
    process.prepare()
    stop_requested = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.set())
    lease = locks.take(home) if descriptor is None else locks.inherit(descriptor)
    while lease is not None and Journal.exists(home):  # opening the journal would create the home again
        with contextlib.closing(Journal(home)) as journal:
            try:
                last_seq = Runner(journal, obey(journal)).run(idle_s=idle_s, until=stop_requested.is_set)
            finally:
                lease.release()
            # An emitter that looked before the release saw a runner and started none.
            is_done = stop_requested.is_set() or (journal.last_seq() <= last_seq and not waiting(home))
        lease = None if is_done else locks.take(home)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
