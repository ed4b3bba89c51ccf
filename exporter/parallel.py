"""Handling many files at once: all cores encode, and one file is fsynced while another is encoded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def workers_default() -> int:
    """Four per core, because a worker with a small file mostly waits for the disk; at most 16."""
    return min(4 * (os.cpu_count() or 1), 16)


def in_parallel(do: Callable[[_Item], _Result], items: Iterable[_Item], *, workers: int) -> list[_Result]:
    """Process all items and return the results in order; with one worker, in the calling thread.

    Raises:
        Exception: the first that an item raised. Items in progress are completed; the others never start.
    """
    items = list(items)
    if workers == 1 or len(items) == 1:
        return [do(item) for item in items]
    pool = ThreadPoolExecutor(min(workers, len(items) or 1), thread_name_prefix="waybill-files")
    try:
        return list(pool.map(do, items))
    finally:
        pool.shutdown(cancel_futures=True)
