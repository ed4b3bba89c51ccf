"""What a question may take: it is given up once it has used its time, or nobody waits for its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeVar

from .errors import WaybillError

_T = TypeVar("_T")


class BudgetError(WaybillError):
    """A question takes more than it may, or is not waited for any more."""


class Budget:
    """The budget of one question, which one thread works on.

    Args:
        cpu_s: so much time of the processor may that thread use for it.
    """

    def __init__(self, cpu_s: float) -> None:
        self._cpu_s = cpu_s
        self._is_ended = False

    def end(self) -> None:
        """Give the question up, from any thread; it ends soon."""
        self._is_ended = True

    def spend(self, work: Callable[[], _T]) -> _T:
        """Work on the question in this thread.

        Raises:
            BudgetError: it was given up.
        """
        ends_s = time.thread_time() + self._cpu_s

        def check() -> None:
            if self._is_ended:
                raise BudgetError("nobody waits for the answer any more")
            if time.thread_time() > ends_s:
                raise BudgetError(
                    f"the answer takes more than {self._cpu_s:g} s of the processor; ask for less"
                )

        before = _CHECK.set(check)
        try:
            check()
            return work()
        finally:
            _CHECK.reset(before)


def check_budget() -> None:
    """Raise a `BudgetError` if the question that this thread works on is given up; call it now and then."""
    _CHECK.get()()


_CHECK: Final[ContextVar[Callable[[], None]]] = ContextVar("_CHECK", default=lambda: None)
