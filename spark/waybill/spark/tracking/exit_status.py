"""How a program ends: an exception that nobody caught, or an exit status.

Python tells an `atexit` function neither. What nobody caught is in `sys.last_value`, which the interpreter
sets before it calls `sys.excepthook`, so that a hook of somebody else's cannot hide it. The exit status is
nowhere: for `SystemExit` there is no hook, and the exception is gone before the first `atexit` function
runs. Yet the interpreter must ask that exception for its `code`, and does so when no Python code is running
any more. `watch` puts itself where that question is asked; for everybody else `code` stays what it was.
Where that cannot be done (an interpreter other than CPython), a program that exits with a status counts as
one that ended well.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import sys
import traceback
from types import MemberDescriptorType
from typing import Final, NoReturn

import msgspec

log = logging.getLogger("waybill.spark")

MESSAGE_CHARS_MAX: Final = 1000
"""The longest message kept of a failure."""

_TRACEBACK: Final = "Traceback (most recent call last):"
_INTERRUPTED_STATUS: Final = 130


class ProgramFailure(msgspec.Struct, frozen=True):
    """Why an application or one of its writes failed.

    Attributes:
        message: one line.
        details: the stack trace or the whole text, if there is more to tell.
        cancelled: whether somebody stopped it (Ctrl-C), which is no error.
    """

    message: str
    details: str | None = None
    cancelled: bool = False

    @classmethod
    def of_exception(cls, error: BaseException) -> ProgramFailure | None:
        """What an exception that ended a program or a block says; None for an exit without a fault."""
        if isinstance(error, SystemExit):
            return cls.of_status(error.code)
        if isinstance(error, KeyboardInterrupt):
            return cls("interrupted from the keyboard", cancelled=True)
        text = headline(str(error))
        name = type(error).__name__
        details = "".join(traceback.format_exception(error))
        return cls(f"{name}: {text}"[:MESSAGE_CHARS_MAX] if text else name, details)

    @classmethod
    def of_status(cls, status: object) -> ProgramFailure | None:
        """What an argument of `sys.exit` says: None and 0 are no failure, a text is its own message."""
        if status is None or status == 0:
            return None
        if isinstance(status, int):
            return cls(f"the program exited with status {status}", cancelled=status == _INTERRUPTED_STATUS)
        return cls(headline(str(status)) or "the program exited with status 1")


def headline(text: str) -> str:
    """The line of an error's text that says most: the exception behind a traceback, else the first line."""
    head, found, trace = text.partition(_TRACEBACK)
    lines = trace.splitlines() if found else head.splitlines()
    telling = (line.strip() for line in lines if line.strip() and not (found and line.startswith(" ")))
    return next(telling, head.strip())[:MESSAGE_CHARS_MAX]


def watch() -> None:
    """Begin to notice the program's exit status; more calls change nothing."""
    try:
        _watch()
    except Exception:
        log.debug("the exit status of this program cannot be noticed", exc_info=True)


def failure_at_exit() -> ProgramFailure | None:
    """Why the program ends, asked in an `atexit` function; None when it ends well."""
    if _is_interactive():
        return None
    if _asked:
        return ProgramFailure.of_status(_asked[-1])
    uncaught = getattr(sys, "last_value", None)
    return ProgramFailure.of_exception(uncaught) if isinstance(uncaught, BaseException) else None


_asked: Final[list[object]] = []


class _Code:
    """`SystemExit.code`, and a note of what the interpreter was told when it asked."""

    def __init__(self, member: MemberDescriptorType) -> None:
        self._member = member

    def __get__(self, error: SystemExit | None, kind: type[SystemExit] | None = None) -> object:
        if error is None:
            return self._member
        status: object = self._member.__get__(error, kind)
        if sys._getframe().f_back is None:  # noqa: SLF001 - nothing else tells that no Python code is asking
            _asked.append(status)
        return status

    def __set__(self, error: SystemExit, status: object) -> None:
        self._member.__set__(error, status)


def _watch() -> None:
    member = SystemExit.__dict__["code"]
    if isinstance(member, _Code):
        return
    # The type's own dictionary; its attribute `__dict__` is a view that cannot be written through.
    (attributes,) = (inner for inner in gc.get_referents(SystemExit.__dict__) if isinstance(inner, dict))
    attributes["code"] = _Code(member)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(SystemExit))
    if sys.version_info < (3, 12):
        # Until 3.11 an exception raised in C stays a bare status until Python code handles it.
        sys.exit = _exit


def _exit(status: object = None, /) -> NoReturn:
    raise SystemExit(status)


def _is_interactive() -> bool:
    # What fails at a prompt or in a notebook's cell ends nothing.
    return (
        hasattr(sys, "ps1") or bool(sys.flags.interactive) or "get_ipython" in vars(sys.modules["builtins"])
    )
