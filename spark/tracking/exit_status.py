"""How a program ends: with an uncaught exception, or with an exit status.

Python tells an `atexit` function neither. An uncaught exception is in `sys.last_value`, which the interpreter
sets before it calls `sys.excepthook`, so that no hook can hide it. The exit status is nowhere: there is
no hook for `SystemExit`, and the exception is gone before the first `atexit` function runs. But the
interpreter reads the exception's `code` when no Python code is running any more. `watch` records that value;
for everybody else `code` does not change. If that is impossible (an interpreter other than
CPython), a program that exits with a status counts as successful.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import re
import sys
from types import MemberDescriptorType
from typing import Final, NoReturn

import msgspec

from waybill.facets.causes import telling
from waybill.transport.tracker.file_run import failure_of

log = logging.getLogger("waybill.spark")

_CANCELLED_STATUSES: Final = (130, 143)
"""The exit statuses of a program that ended on SIGINT or SIGTERM, as a shell and Java report them."""
_CANCELLED: Final = re.compile(r"\Ajava\.lang\.InterruptedException\b|\bJob \d+ cancelled\b")
"""In the error of a write that somebody interrupted, or whose jobs somebody cancelled, as Spark 3 and 4
have it."""


class ProgramFailure(msgspec.Struct, frozen=True):
    """Why an application or one of its writes failed.

    Attributes:
        details: the stack trace or the whole text, if there is more than one line.
        cancelled: whether somebody stopped it (Ctrl-C, SIGTERM, or its jobs), which is no error.
    """

    message: str
    details: str | None = None
    cancelled: bool = False

    @classmethod
    def of_write(cls, error: str) -> ProgramFailure:
        """The failure of a write, from the text of its error."""
        return cls(telling(error), error, cancelled=_CANCELLED.search(error) is not None)

    @classmethod
    def of_exception(cls, error: BaseException) -> ProgramFailure | None:
        """The failure of a program or block that an exception ended; None for an exit without a failure."""
        if isinstance(error, SystemExit):
            return cls.of_status(error.code)
        if isinstance(error, KeyboardInterrupt):
            return cls("interrupted from the keyboard", cancelled=True)
        failure = failure_of(error)
        return cls(telling(failure.message), failure.stack_trace)

    @classmethod
    def of_status(cls, status: object) -> ProgramFailure | None:
        """The failure for an argument of `sys.exit`: None and 0 are no failure, a text is the message."""
        if status is None or status == 0:
            return None
        if isinstance(status, int):
            return cls(f"the program exited with status {status}", cancelled=status in _CANCELLED_STATUSES)
        text = ""
        with contextlib.suppress(Exception):  # the object's own code runs here and may raise anything
            text = telling(str(status))
        return cls(text or "the program exited with status 1")


def watch() -> None:
    """Start watching for the program's exit status; further calls do nothing."""
    try:
        member = SystemExit.__dict__["code"]
        if isinstance(member, _Code):
            return
        # The type's own dictionary: its attribute `__dict__` is a read-only view.
        (attributes,) = (inner for inner in gc.get_referents(SystemExit.__dict__) if isinstance(inner, dict))
        attributes["code"] = _Code(member)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
    except Exception:
        log.debug("cannot detect the exit status of this program", exc_info=True)
        return
    if sys.version_info < (3, 12):
        # Up to Python 3.11 an exception raised in C stays a bare status until Python code handles it.
        sys.exit = _exit


def failure_at_exit() -> ProgramFailure | None:
    """Why the program failed, for an `atexit` function; None if it succeeded."""
    # A failure at a prompt or in a notebook's cell does not end the program.
    is_notebook = "get_ipython" in vars(sys.modules["builtins"])
    if is_notebook or hasattr(sys, "ps1") or sys.flags.interactive:
        return None
    if _read_at_exit:
        return ProgramFailure.of_status(_read_at_exit[-1])
    uncaught = getattr(sys, "last_value", None)
    return ProgramFailure.of_exception(uncaught) if isinstance(uncaught, BaseException) else None


_read_at_exit: Final[list[object]] = []


class _Code:
    """`SystemExit.code`, which records the value that the interpreter reads at the end of the program."""

    def __init__(self, member: MemberDescriptorType) -> None:
        self._member = member

    def __get__(self, error: SystemExit | None, kind: type[SystemExit] | None = None) -> object:
        if error is None:
            return self._member
        status: object = self._member.__get__(error, kind)
        if sys._getframe().f_back is None:  # noqa: SLF001 - only this tells that no Python code is reading
            _read_at_exit.append(status)
        return status

    def __set__(self, error: SystemExit, status: object) -> None:
        self._member.__set__(error, status)


def _exit(status: object = None, /) -> NoReturn:
    raise SystemExit(status)
