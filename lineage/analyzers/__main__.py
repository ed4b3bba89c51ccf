"""The process of a `Worker`: has the analyzers read each event that comes through a pipe.

It is given the pipe's file descriptor, the seconds of the processor that an event may take, and the seconds
that it may wait; the system ends it after that.
"""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
import sys
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from .analyzer import Found, analyze_event, load_analyzers
from .worker import MEMORY_BYTES_MAX, Request, Result

_START_S_MAX: Final = 60
_DEPTH_MAX: Final = 10_000
"""Long chains of AND and UNION are nested deeply; this process may overflow its stack, others may not."""


def main() -> None:
    """Answer until the pipe is closed."""
    connection, time_s_max, wait_s_max = Connection(int(sys.argv[1])), float(sys.argv[2]), float(sys.argv[3])
    signal.alarm(_START_S_MAX)
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings quote the text
    analyzers, _ = load_analyzers()
    from . import reading_sql  # noqa: F401 - not in the time of the first event

    with contextlib.suppress(OSError, ValueError):  # some systems cannot limit it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    sys.setrecursionlimit(_DEPTH_MAX)
    signal.alarm(0)
    with contextlib.suppress(EOFError):
        while True:
            request = msgspec.msgpack.decode(connection.recv_bytes(), type=Request)
            signal.setitimer(signal.ITIMER_PROF, time_s_max)
            signal.setitimer(signal.ITIMER_REAL, wait_s_max)
            try:
                catalog = {(namespace, name): columns for namespace, name, columns in request.catalog}
                event = msgspec.json.decode(request.event, type=Found)
                findings = tuple(analyze_event(event, catalog, analyzers))
                is_short = any((one.problem or "").startswith(MemoryError.__name__) for one in findings)
                result = Result(request.key, findings, is_accident=is_short)
            except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
                result = Result(request.key, problem=f"it is no event: {error}")
            except MemoryError:
                short = "reading it needs more memory than there is"
                result = Result(request.key, problem=short, is_accident=True)
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
            connection.send_bytes(msgspec.msgpack.encode(result))


if __name__ == "__main__":
    main()
