"""The process of a `Worker`: has the analyzers read each event that comes through a pipe.

It is given the seconds that one event may take; the system ends it after that.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sys
from typing import Final

import msgspec

from .analyzer import Found, analyze_event, load_analyzers
from .worker import MEMORY_BYTES_MAX, Answer, Request, read_message, write_message

_START_S_MAX: Final = 60
_DEPTH_MAX: Final = 10_000
"""Long chains of AND and UNION are nested deeply; this process may overflow its stack, others may not."""


def main() -> None:
    """Answer until the pipe is closed."""
    time_s_max = float(sys.argv[1])
    signal.alarm(_START_S_MAX)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for anything that an analyzer prints
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings quote the text
    analyzers, _ = load_analyzers()
    from . import reading_sql  # noqa: F401 - not in the time of the first event

    with contextlib.suppress(OSError, ValueError):  # some systems cannot limit it
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    sys.setrecursionlimit(_DEPTH_MAX)
    signal.alarm(0)
    while (body := read_message(requests)) is not None:
        signal.setitimer(signal.ITIMER_REAL, time_s_max)
        try:
            request = msgspec.msgpack.decode(body, type=Request)
            catalog = {(namespace, name): columns for namespace, name, columns in request.catalog}
            event = msgspec.json.decode(request.event, type=Found)
            answer = Answer(tuple(analyze_event(event, catalog, analyzers)))
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            answer = Answer(problem=f"it is no event: {error}")
        except MemoryError:
            answer = Answer(problem="reading it needs more memory than there is")
        signal.alarm(0)
        write_message(answers, msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main()
