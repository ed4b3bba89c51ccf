"""The records of the files that one summary in Marquez stands for, from their entries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from waybill.marquez.summaries import Members
from waybill.transport.counting import counted

from ..incomplete import IncompleteError
from ..stored_records import decode_entries
from .tail import damaged, entries_after

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal


class Summarized(NamedTuple):
    """The records of one summary.

    Attributes:
        tables: its records, in the order in which they were accepted, by `waybill.facets.arrow.SCHEMA`.
            Raises an `IncompleteError` where something could not be read.
        exact: whether these are exactly the records that the summary counts; otherwise they are those of all
            files of its flow that ended within the longest time that a summary covers.
    """

    tables: Iterator[pa.Table]
    exact: bool


def read_summarized(journal: Journal, settings: Settings, backend: str, seq: int) -> Summarized | None:
    """The records of the summary that an entry stands for at a backend; None if there is no such summary.

    The entries come from the journal, and from the archive if the journal has deleted them. A record is as
    its own entry gives it: the ends of one path are not merged.

    Raises:
        JournalError: the journal cannot be read.
    """
    members = Members(journal, backend, seq)
    if not members.possible:
        return None
    unread: list[str] = []
    batches = members.of(_entries_from(journal, settings.root, seq, unread))
    first = next(batches, None)
    if first is None and not unread:
        return None

    def tables() -> Iterator[pa.Table]:
        for entries in itertools.chain([first or []], batches):
            table = _decoded(journal, settings, entries, unread)
            if unread:
                break
            yield table
        if members.lacking and not unread:
            unread.append(f"{counted(members.lacking, 'entry', 'entries')} of the summary cannot be found")
        if unread:
            raise IncompleteError(tuple(unread))

    return Summarized(tables(), members.exact)


def _decoded(journal: Journal, settings: Settings, entries: list[Entry], unread: list[str]) -> pa.Table:
    return decode_entries(
        entries,
        system_name=settings.system_name,
        rule=settings.annotation_rule,
        on_error=lambda entry, error: unread.append(damaged(journal, entry, error)),
    ).records


def _entries_from(journal: Journal, root: Path, seq: int, unread: list[str]) -> Iterator[list[Entry]]:
    """The entries from one on, in order, that can be read."""
    for entries in entries_after(journal, root, seq - 1, unread):
        unread += [damaged(journal, entry, entry.damage) for entry in entries if entry.damage is not None]
        yield [entry for entry in entries if entry.damage is None]
