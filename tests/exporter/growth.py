"""How long work takes as there is more of it."""

from __future__ import annotations

import time
from collections.abc import Callable

_TIMES = 4
_ATTEMPTS = 5


def check_linear(prepare: Callable[[int], Callable[[], object]], number: int) -> None:
    """Check that four times as much takes less than eight times as long; were it squared, it took sixteen.

    What else the machine does only adds to a time, so one good attempt is enough.

    Args:
        prepare: makes the work for so many; what it does itself is not measured.
        number: how many are few.
    """
    few, many = prepare(number), prepare(_TIMES * number)
    few()  # whatever is loaded late is loaded
    ratios: list[float] = []
    while len(ratios) < _ATTEMPTS:
        few_s = _cpu_s(few)
        ratios.append(_cpu_s(many) / few_s)
        if ratios[-1] < 2 * _TIMES:
            return
    raise AssertionError(f"{_TIMES} times as much took {ratios} times as long")


def _cpu_s(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s
