"""The start and the end of the command's process: what its streams take, and how it is interrupted."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from typing import Final

EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
_PIPE_CLOSED: Final = 128 + signal.SIGPIPE
_ESCAPES: Final = "waybill-escapes"


@contextlib.contextmanager
def own_process() -> Iterator[None]:
    """Have this process for a command line alone, and end it with an exit code that scripts can trust.

    Where nobody reads the output to its end, as with `| head`, the code is that of SIGPIPE, 141.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until a command begins, Ctrl-C would interrupt an import. A handler that is inherited stays.
        signal.signal(signal.SIGINT, end_at_once)
    codecs.register_error(_ESCAPES, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a program that calls this may have put another in its place
            stream.reconfigure(errors=_ESCAPES)
    output = sys.stdout
    try:
        yield
    finally:
        # Typer ends with 1 where the output is closed, and first puts something in its place.
        is_unread = sys.stdout is not output
        try:
            output.flush()
        except BrokenPipeError:
            is_unread = True
        if is_unread:
            os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())  # what is left cannot be written
            sys.exit(_PIPE_CLOSED)


def end_at_once(*_: object) -> None:
    """End this process without a word, as a handler of SIGINT: what Ctrl-C does until a command begins."""
    os._exit(EXIT_INTERRUPTED)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Write what an encoding lacks as JSON does: ``\u00e9``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(rf"\u{pair}" for pair in pairs), error.end
