"""How long work takes as the amount of it grows."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

_TIMES = 4
_ATTEMPTS = 5


def check_linear(prepare: Callable[[int], Callable[[], object]], number: int) -> None:
    """Check that four times as much takes less than eight times as long; quadratic work would take sixteen.

    What else the machine does only adds to a time, so one good attempt is enough.

    Args:
        prepare: makes the work for so many; what it does itself is not measured.
        number: how many are few.
    """
    few, many = prepare(number), prepare(_TIMES * number)
    few()  # everything that loads lazily is loaded
    ratios: list[float] = []
    while len(ratios) < _ATTEMPTS:
        few_s = _cpu_s(few)
        ratios.append(_cpu_s(many) / few_s)
        if ratios[-1] < 2 * _TIMES:
            return
    raise AssertionError(f"{_TIMES} times as much took {ratios} times as long")


def _cpu_s(work: Callable[[], object]) -> float:
    """Time the work without the garbage collector, whose cost depends on everything in this process."""
    gc.collect()
    gc.disable()
    try:
        began_s = time.process_time()
        work()
        return time.process_time() - began_s
    finally:
        gc.enable()
