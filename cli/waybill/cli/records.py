"""How provenance records are shown to people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from waybill.cli import console
from waybill.facets import EVIDENCE, FinalState, ProvenanceRecord

if TYPE_CHECKING:
    from rich.text import Text

STATE_STYLES: Final = {
    FinalState.COMPLETE: "green",
    FinalState.ERROR: "red",
    FinalState.FILTERED: "yellow",
    FinalState.CANCELLED: "yellow",
    FinalState.SPLIT: "cyan",
}

_COLUMNS: Final = ("completed", "state", "filename", "passage", "annotations", "system", "did")


def passage_of(record: ProvenanceRecord) -> str:
    """The flows that a file passed, from source to sink."""
    return " > ".join(name for name in (record.data_source, *record.transforms, record.data_sink) if name)


def show(records: Sequence[ProvenanceRecord]) -> None:
    """Print records: a column for each field; a line for each on a terminal, which is narrower."""
    if console.on_terminal():
        rows = ((instant_of(one.completed)[:19], one.final_state.value, _block(one)) for one in records)
        console.drawing(console.grid(("completed", "state", "file"), rows))
        return
    console.table(
        _COLUMNS,
        (
            (
                instant_of(record.completed),
                record.final_state.value,
                record.filename,
                passage_of(record),
                ", ".join(_notes_of(record)),
                record.system_name,
                record.did,
            )
            for record in records
        ),
    )


def summary(record: ProvenanceRecord) -> str:
    """A record as one line of text."""
    parts = [
        instant_of(record.completed),
        record.final_state.value,
        record.filename,
        passage_of(record),
        *_notes_of(record),
        f"in {record.system_name}",
    ]
    return "  ".join(part for part in parts if part)


def _block(record: ProvenanceRecord) -> Text:
    from rich.text import Text

    details = (f"{record.did} in {record.system_name}", *_notes_of(record))
    beneath = "".join(f"\n{console.shown(text)}" for text in details)
    name = (console.shown(record.filename), f"bold {STATE_STYLES[record.final_state]}")
    return Text.assemble(name, f"\n{console.shown(passage_of(record))}", (beneath, "dim"))


def _notes_of(record: ProvenanceRecord) -> list[str]:
    """The annotations, and apart from them on what the record rests, where that is not the run's own word."""
    annotations = dict(record.annotations or {})
    evidence = annotations.pop(EVIDENCE, None)
    said = ", ".join(f"{key}={value}" for key, value in sorted(annotations.items()))
    return [text for text in (said, evidence and f"evidence: {evidence}") if text]


def instant_of(epoch_ms: int) -> str:
    """An instant in UTC, as ``2026-01-31 23:59:59.999``."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")
