"""What became of an acknowledged entry, by its receipt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.exporter.layout import Layout
from waybill.exporter.query import Located, locate_entry
from waybill.facets import DELTA_FILE_FACET, RunEvent, decode_event
from waybill.transport.journal import Kind
from waybill.transport.runner import Progress, progress_of, statuses

if TYPE_CHECKING:
    from waybill.collector.intake import Receipt
    from waybill.transport import Entry, Journal


class ReceiptStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry is.

    Attributes:
        in_journal: whether the journal still holds it; entries that every projection has are pruned in time.
        projections: by name, how far each is; backends have their names from the settings. An entry that
            gives no record, or that a backend does not take, is done too.
        files: where its records are. Empty where that is no longer or not yet known: the entry was pruned,
            the layout has not come to it, or the record is made of more than this entry.
        remark: why there are no files although the layout has dealt with the event.
    """

    receipt: str
    in_journal: bool
    projections: dict[str, Progress]
    files: list[Located]
    remark: str | None = None


def receipt_status(journal: Journal, root: Path, receipt: Receipt) -> ReceiptStatus | None:
    """Look for an entry of the home's journal and layout; None when this journal never had it.

    Raises:
        JournalError: the journal cannot be read.
        OSError: the root cannot be read.
    """
    if receipt.node != journal.node or receipt.seq > journal.last_seq():
        return None
    entries = [entry for entry in journal.read(receipt.seq - 1, limit=1) if entry.seq == receipt.seq]
    progress = {name: progress_of(journal, name, receipt.seq) for name in sorted(statuses(journal))}
    filed = entries and progress.get(Layout.name) is Progress.DONE
    files = locate_entry(root, journal.node, entries[0]) if filed else []
    return ReceiptStatus(
        receipt=str(receipt),
        in_journal=bool(entries),
        projections=progress,
        files=files,
        remark=_remark(entries[0]) if filed and not files else None,
    )


def _remark(entry: Entry) -> str | None:
    """Why no file has records of this entry alone, although the layout has dealt with it."""
    if entry.kind is not Kind.OPENLINEAGE:
        return None
    event = decode_event(entry.body)
    if not isinstance(event, RunEvent):
        return "it is static: an event of no run gives no record"
    if event.run.facets is not None and event.run.facets.delta_file is not None:
        return "it ends no path of its file: the event that does gives the record"
    run = event.run.runId
    return (
        f"its run has no facet {DELTA_FILE_FACET}, so that one record is made of all the run's events once "
        f"it has settled: `waybill explain {run}` names its file"
    )
