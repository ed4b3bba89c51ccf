"""A flush that a person waits for."""

from __future__ import annotations

from collections.abc import Sequence

from waybill.transport import FlushReport, Settings, flush

from . import console
from .home import check_options


def flush_with_progress(settings: Settings, timeout_s: float | None = None) -> FlushReport:
    """Flush a home with a progress bar, if its live runner does not work by other options."""
    check_options(settings)
    with console.progress("flushing") as update:

        def show(done: int, total: int, behind: Sequence[str]) -> None:
            text = f"flushing, waiting for {', '.join(behind)}" if behind else "flushing"
            update(description=text, completed=done, total=total)

        return flush(settings, timeout_s=timeout_s, on_progress=show)
