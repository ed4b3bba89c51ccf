"""``python -m waybill.transport HOME [DESCRIPTOR]``: be the runner of a home until nothing is left to do."""

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
from waybill.transport.runner import Runner

_BELOW_PIPELINES = 5


def main(home: Path, descriptor: int | None = None) -> int:
    """Run the projections of a home; 0 also when another process does it already.

    Args:
        home: whose.
        descriptor: that of the home's lease, which the process that started this one has reserved for it.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    os.nice(_BELOW_PIPELINES)
    process.prepare()
    stop_requested = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.set())
    held = locks.take(home) if descriptor is None else locks.inherit(descriptor)
    while held is not None and Journal.exists(home):  # a home that is gone is not made anew
        with contextlib.closing(Journal(home)) as journal:
            try:
                seen = Runner(journal, obey(journal)).run(until=stop_requested.is_set)
            finally:
                held.release()
            # An emitter that looked before the release saw a runner and started none.
            is_done = stop_requested.is_set() or (journal.last_seq() <= seen and not waiting(home))
        held = None if is_done else locks.take(home)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
