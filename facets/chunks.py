"""Cutting a stream by size, so that each part fits into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_Item = TypeVar("_Item")


def in_chunks(
    items: Iterable[_Item], size_of: Callable[[_Item], int], chunk_bytes: int
) -> Iterator[list[_Item]]:
    """Return the items, in order, in lists that each end with the item that fills `chunk_bytes`."""
    chunk: list[_Item] = []
    size_bytes = 0
    for item in items:
        chunk.append(item)
        size_bytes += size_of(item)
        if size_bytes >= chunk_bytes:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk
