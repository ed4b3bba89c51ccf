"""What became of something that was acknowledged, by its receipt."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.placed import Placed, placed
from waybill.exporter.projection import Layout
from waybill.marquez import dead_letters
from waybill.marquez.ledger import ROW_PREFIX, Ledger
from waybill.marquez.marks import Marks
from waybill.transport.runner import statuses

if TYPE_CHECKING:
    from waybill.collector.receipt import Receipt
    from waybill.transport import Journal

_IN_ORDER: Final = (Layout.name, "archive")
"""Projections that deal with entries strictly in order; all others are backends."""


class Progress(StrEnum):
    """How far a projection is with an entry."""

    WAITING = "waiting"
    DONE = "done"
    COALESCED = "in a summary"
    """The backend has, or gets, a summary that stands for it; see the setting ``marquez_detail``."""
    REFUSED = "refused for good"


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry is.

    Attributes:
        receipt: its name.
        in_journal: whether the journal still holds it; it lets go of what every projection has.
        projections: by name, how far each is; backends go by the names of the settings. An entry that gives
            no record, and one that a backend does not take, are done as well.
        files: where its records are. None where that is not known any more, or not yet: the journal has let
            go of the entry, the layout has not come to it, or the record of its run comes with the run's end.
    """

    receipt: str
    in_journal: bool
    projections: dict[str, Progress]
    files: list[Placed]


def where(journal: Journal, root: Path, receipt: Receipt) -> Whereabouts | None:
    """Look for an entry; None when this journal never had it.

    Args:
        journal: the home's journal.
        root: the home's root.
        receipt: what its sender was given.

    Raises:
        JournalError: the journal cannot be read.
        OSError: the root cannot be read.
    """
    if receipt.node != journal.node or receipt.seq > journal.last_seq():
        return None
    entries = [entry for entry in journal.read(receipt.seq - 1, limit=1) if entry.seq == receipt.seq]
    progress = {name: _progress(journal, name, receipt.seq) for name in sorted(statuses(journal))}
    filed = entries and progress.get(Layout.name) is Progress.DONE
    return Whereabouts(
        receipt=str(receipt),
        in_journal=bool(entries),
        projections=progress,
        files=placed(root, journal.node, entries[0]) if filed else [],
    )


def _progress(journal: Journal, name: str, seq: int) -> Progress:
    cursor = journal.cursor(name)
    if name in _IN_ORDER:
        return Progress.WAITING if seq > cursor else Progress.DONE
    if any(letter.seq == seq for letter in dead_letters(journal, name)):
        return Progress.REFUSED
    if seq in Marks(journal, name):
        return Progress.COALESCED
    ledger = Ledger(cursor, journal.state(name, ROW_PREFIX))
    return Progress.DONE if seq in ledger else Progress.WAITING
