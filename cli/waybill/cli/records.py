"""How provenance records are shown to people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from waybill.cli import console
from waybill.facets import FinalState, ProvenanceRecord

STATE_STYLES: Final = {
    FinalState.COMPLETE: "green",
    FinalState.ERROR: "bold red",
    FinalState.FILTERED: "yellow",
    FinalState.CANCELLED: "yellow",
    FinalState.SPLIT: "cyan",
}

_COLUMNS: Final = ("completed", "state", "filename", "passage", "annotations", "system", "did")


def passage_of(record: ProvenanceRecord) -> str:
    """The flows a file passed, from source to sink."""
    return " > ".join(name for name in (record.data_source, *record.transforms, record.data_sink) if name)


def show(records: Sequence[ProvenanceRecord]) -> None:
    """Print records as a table."""
    console.table(
        _COLUMNS,
        (
            (
                instant_of(record.completed),
                record.final_state.value,
                record.filename,
                passage_of(record),
                " ".join(f"{key}={value}" for key, value in sorted((record.annotations or {}).items())),
                record.system_name,
                record.did,
            )
            for record in records
        ),
    )


def instant_of(epoch_ms: int) -> str:
    """An instant in UTC, as ``2026-01-31 23:59:59.999``."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).replace(tzinfo=None).isoformat(" ", "milliseconds")
