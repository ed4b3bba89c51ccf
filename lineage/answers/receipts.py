"""The state of an acknowledged entry, by its receipt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.layout import Layout
from waybill.exporter.query import Located, locate_entry
from waybill.facets import DELTA_FILE_FACET
from waybill.transport.journal import Kind, Receipt
from waybill.transport.root import check_root
from waybill.transport.runner import Progress, progress_of, statuses

if TYPE_CHECKING:
    from waybill.transport import Entry, Journal

_LOST: Final = (
    "the journal was restored to a time before this entry and no longer has it; if the entry was filed "
    "before that, it is still in the files and in the archive of the root"
)
_USED_TWICE: Final = (
    "the journal was restored and used this number twice, so this may be a different entry from the one that "
    "the receipt was for; if that one was filed before, it is still in the root"
)


class ReceiptStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry is.

    Attributes:
        in_journal: whether the journal still holds it; entries that every projection has processed are
            deleted in time.
        projections: the progress of each, by name; backends have their names from the settings. An entry that
            gives no record, or that a backend does not accept, also counts as done.
        files: where its records are. Empty if that is no longer or not yet known: the entry was deleted, the
            layout has not reached it, or the record is folded from more than this entry.
        remark: why there are no files although the layout has processed the event, or that the journal has
            lost the entry.
    """

    receipt: str
    in_journal: bool
    projections: dict[str, Progress]
    files: list[Located]
    remark: str | None = None


def receipt_status(journal: Journal, root: Path, receipt: Receipt) -> ReceiptStatus | None:
    """Look for an entry in the home's journal and layout; None if this journal never had it.

    Raises:
        JournalError: the journal cannot be read.
        RootError: the folder is not the root that the home files into.
        OSError: the root cannot be read.
    """
    nodes = journal.nodes()
    at = next((at for at, node in enumerate(nodes) if node.name == receipt.node), None)
    if at is None:
        return None
    later = nodes[at + 1] if nodes[at + 1 :] else None
    is_used_twice = later is not None and later.lost is not None and _within(receipt.seq, later.lost)
    if receipt.seq > (journal.last_seq() if later is None else later.after):
        if not is_used_twice:
            return None
        return ReceiptStatus(receipt=str(receipt), in_journal=False, projections={}, files=[], remark=_LOST)
    entries = [entry for entry in journal.read(receipt.seq - 1, limit=1) if entry.seq == receipt.seq]
    progress = {name: progress_of(journal, name, receipt.seq) for name in sorted(statuses(journal))}
    readable = entries and entries[0].damage is None
    filed = readable and progress.get(Layout.name) is Progress.DONE
    if filed:
        check_root(journal, root)
    # It is filed under the node of its receipt or a later one; a repeat is where the first entry is.
    places = (locate_entry(root, node.name, entries[0]) for node in (*nodes[at:], *nodes[:at]) if filed)
    files = next(filter(None, places), [])
    remark = _remark(entries[0]) if filed and not files else None
    return ReceiptStatus(
        receipt=str(receipt),
        in_journal=bool(entries),
        projections=progress,
        files=files,
        remark=_USED_TWICE if is_used_twice else remark,
    )


def _within(seq: int, numbers: tuple[int, int]) -> bool:
    return numbers[0] <= seq <= numbers[1]


def _remark(entry: Entry) -> str | None:
    """Why no file has records of this entry alone, although the layout has processed it."""
    if entry.kind is not Kind.OPENLINEAGE:
        return None
    event = entry.run_event
    if event is None:
        return "a static event belongs to no run and gives no record"
    if event.run.facets is not None and event.run.facets.delta_file is not None:
        return "it does not end a path of its file; the event that ends the path gives the record"
    run = event.run.runId
    return (
        f"its run has no facet {DELTA_FILE_FACET}, so its record is folded from all the run's events once "
        f"it has settled: `waybill explain {run}` names the file"
    )
