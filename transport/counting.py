"""Numbers of things, durations and sizes, as people say them."""

from __future__ import annotations

from typing import Final

_UNITS_MS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_WHOLE_FROM_S: Final = 10
"""From so many seconds on, milliseconds say nothing."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun: ``1 file``, ``2,048 files``; `many` is the plural where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units, as files take it too: ``5m 32s``, ``1h``, ``430ms``."""
    left_ms = round(seconds) * 1_000 if seconds >= _WHOLE_FROM_S else max(round(seconds * 1_000), 0)
    units = [(unit, size_ms) for unit, size_ms in _UNITS_MS if size_ms <= left_ms] or [("s", 1_000)]
    parts: list[str] = []
    for unit, size_ms in units[:2]:
        count, left_ms = divmod(left_ms, size_ms)
        if count or not parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts)


def size_text(size_bytes: float) -> str:
    """A number of bytes in its largest unit: ``812 B``, ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1_024:  # noqa: PLR2004 - the next unit
            return f"{size_bytes:,.1f} {unit}" if unit != "B" else f"{size_bytes:,.0f} B"
        size_bytes /= 1_024
    return f"{size_bytes:,.1f} TiB"
