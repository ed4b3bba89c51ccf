"""The display of provenance records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import msgspec
import typer

from waybill.facets import EVIDENCE, FinalState, ProvenanceRecord, json_events, record_key
from waybill.facets.record import passage_of

from . import console

if TYPE_CHECKING:
    from rich.text import Text

    from waybill.facets.merge_rule import RecordKey
    from waybill.lineage.index import JobRun

STATE_STYLES: Final = {
    FinalState.COMPLETE: "green",
    FinalState.ERROR: "red",
    FinalState.FILTERED: "yellow",
    FinalState.CANCELLED: "yellow",
    FinalState.SPLIT: "cyan",
}

iso: Final = json_events.instant
_MS: Final = "_ms"
_OF_RECORDS: Final = frozenset({"created", "completed"})
_OF_USERS: Final = "annotations"
"""The field whose keys are the users' own."""

_LOCAL: Final = "local"
_UNSETTLED: Final = " (not settled yet)"
_SECONDS: Final = len("2026-01-31 23:59:59")
_COLUMNS: Final = ("state", "filename", "passage", "annotations", "system", "did")


def show(
    records: Sequence[ProvenanceRecord],
    zone: tzinfo | None = UTC,
    unsettled: Collection[RecordKey] = frozenset(),
    runs: Mapping[str, JobRun] = MappingProxyType({}),
    *,
    as_csv: bool = False,
) -> None:
    """Print records with a column for each field; on a terminal, which is narrower, in blocks of lines.

    The `unsettled` records, given by key, may still change and are marked. Those of `runs`, by did, are shown
    as runs.
    """
    from waybill.lineage.index import shown_as

    marks = [_UNSETTLED if record_key(record) in unsettled else "" for record in records]
    told = shown_as(records, runs)

    completed = f"completed ({name_of(zone)})"
    if console.on_terminal() and not as_csv:
        rows = (
            (
                instant_of(record.completed, zone)[:_SECONDS],
                record.final_state.value,
                _block(record, mark),
            )
            for record, mark in zip(told, marks, strict=True)
        )
        grid = console.grid((completed, "state", "file"), rows)
        grid.columns[0].max_width = _SECONDS  # a zone's name would take the room of the dids
        console.drawing(grid)
        return
    console.table(
        (completed, *_COLUMNS),
        (
            (
                instant_of(record.completed, zone),
                f"{record.final_state.value}{mark}",
                record.filename,
                passage_of(record),
                ", ".join(_notes_of(record)),
                record.system_name,
                record.did,
            )
            for record, mark in zip(told, marks, strict=True)
        ),
        as_csv=as_csv,
    )


def as_plain(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """A value as plain JSON; instants (of records, or in fields called ``…_ms``) are as `iso` writes them."""
    return _told(msgspec.to_builtins(value))


def _told(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return dict(_told_field(name, one) for name, one in value.items())
    return [_told(one) for one in value] if isinstance(value, (list, tuple)) else value


def _told_field(name: str, value: Any) -> tuple[str, Any]:  # noqa: ANN401 - any JSON value
    if name == _OF_USERS:
        return name, value
    if name.endswith(_MS) and isinstance(value, (int, NoneType)):
        return name.removesuffix(_MS), value if value is None else iso(value)
    return name, iso(value) if name in _OF_RECORDS and isinstance(value, int) else _told(value)


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


def _block(record: ProvenanceRecord, mark: str) -> Text:
    from rich.text import Text

    passage = f"{passage_of(record)}{mark}"
    details = (f"{record.did} in {record.system_name}", *_notes_of(record))
    beneath = "".join(f"\n{console.shown(text)}" for text in details)
    name = (console.shown(record.filename), f"bold {STATE_STYLES[record.final_state]}")
    return Text.assemble(name, f"\n{console.shown(passage)}", (beneath, "dim"))


def _notes_of(record: ProvenanceRecord) -> list[str]:
    """The annotations, and separately the record's evidence, if it is not the run's own report."""
    annotations = dict(record.annotations or {})
    evidence = annotations.pop(EVIDENCE, None)
    said = ", ".join(f"{key}={value}" for key, value in sorted(annotations.items()))
    return [text for text in (said, evidence and f"evidence: {evidence}") if text]


def instant_of(epoch_ms: int, zone: tzinfo | None = UTC) -> str:
    """An instant for people, ``2026-01-31 23:59:59.999``; the zone None is the machine's own."""
    at = datetime.fromtimestamp(epoch_ms // 1_000, UTC).replace(microsecond=epoch_ms % 1_000 * 1_000)
    return at.astimezone(zone).replace(tzinfo=None).isoformat(" ", "milliseconds")


def zone_of(name: str) -> tzinfo | None:
    """The zone that a user names: ``UTC``, ``local`` (which gives None), or one such as ``Europe/Paris``.

    Raises:
        typer.BadParameter: there is no such zone.
    """
    if name.upper() == "UTC":
        return UTC
    if name == _LOCAL:
        return None
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        says = f"there is no zone {name!r}; give UTC, local, or one such as Europe/Paris"
        raise typer.BadParameter(says, param_hint="--tz") from None


def name_of(zone: tzinfo | None) -> str:
    """The name of a zone in a heading."""
    return _LOCAL if zone is None else str(zone)
