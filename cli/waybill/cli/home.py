"""A home as a command finds it: its journal, where there is one, and the settings its runner works by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from waybill.transport import Journal, Settings
from waybill.transport.agreement import agreed, follow


@contextlib.contextmanager
def existing_journal(settings: Settings) -> Iterator[Journal | None]:
    """Open the home's journal for one command; None where there is none, and none is made.

    Raises:
        JournalError: what is there cannot be used.
    """
    if not Journal.exists(settings.home):
        yield None
        return
    journal = Journal(settings.home)
    try:
        yield journal
    finally:
        journal.close()


def as_agreed(settings: Settings, journal: Journal | None) -> Settings:
    """The settings with the home's own in place of those that nobody gave."""
    return follow(settings, agreed(journal)) if journal else settings
