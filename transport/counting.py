"""Numbers of things, as people say them."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun: ``1 file``, ``2,048 files``; `many` is the plural where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
