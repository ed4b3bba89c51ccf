"""``python -m waybill.transport HOME``: be the runner of a home until nothing is left to do."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

from waybill.transport import lease, process
from waybill.transport.agreement import obey
from waybill.transport.journal import Journal
from waybill.transport.runner import Runner
from waybill.transport.spool import waiting

_BELOW_PIPELINES = 5
_TAKE_WITHIN_S = 2.0


def main(home: Path) -> int:
    """Run the projections of a home; 0 also when another process does it already."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"
    )
    os.nice(_BELOW_PIPELINES)
    process.prepare()
    stop_requested = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop_requested.set())
    while (held := _take(home)) is not None:
        try:
            journal = Journal(home)
            seen = Runner(journal, obey(journal)).run(until=stop_requested.is_set)
        finally:
            held.release()
        # An emitter that looked before the release saw a runner and started none.
        if stop_requested.is_set() or (journal.last_seq() <= seen and not waiting(home)):
            break
    return 0


def _take(home: Path) -> lease.Lease | None:
    # An emitter that looks whether there is a runner holds the lock for a moment.
    deadline_s = time.monotonic() + _TAKE_WITHIN_S
    while (held := lease.take(home)) is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return held


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
