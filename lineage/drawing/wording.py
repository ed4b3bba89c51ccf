"""The words for a file or a fold, the same in every picture."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from waybill.facets import FinalState
from waybill.facets.record import passage_of

from .lines import Fold

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

    from ..file_table import JourneyFile
    from ..index import OpenFile

_SECOND_MS = 1_000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", _SECOND_MS), ("ms", 1))


def duration_of(record: ProvenanceRecord) -> str:
    """How long a path took, in its largest unit and with one digit after the point: ``1.5 s``."""
    took_ms = max(record.completed - record.created, 0)
    unit, size_ms = next(((unit, size) for unit, size in _UNITS if took_ms >= size), _UNITS[-1])
    return f"{took_ms / size_ms:.1f} {unit}" if size_ms > 1 else f"{took_ms} ms"


def last_begun_of(file: OpenFile) -> str:
    """The last transform that an open file began, as the end of a phrase; empty if none was noted."""
    return "" if file.transform is None else f", last began {file.transform}"


def words_of(of: JourneyFile | Fold) -> list[str]:
    """The lines of text of one place in a picture."""
    if isinstance(of, Fold):
        return [said_of(of)]
    told = [f"{one.final_state}: {passage_of(one)}, {duration_of(one)}" for one in of.records]
    if of.open is not None:
        began = datetime.fromtimestamp(of.open.began_ms / _SECOND_MS, UTC)
        begun = f"begun {began:%Y-%m-%d %H:%M:%S} UTC, not ended{last_begun_of(of.open)}"
        told.append(f"{of.open.data_source}: {begun}")
    return [of.filename or of.did, *(told or ["no record"])]


def said_of(fold: Fold) -> str:
    """A fold in one line: ``312 files: 309 COMPLETE > lake, 3 ERROR``."""
    ends = [f"{paths:,} {state}{f' > {sink}' if sink else ''}" for (state, sink), paths in fold.ends.items()]
    if fold.open_files:
        ends.append(f"{fold.open_files:,} not ended")
    beyond = f", and {fold.descendants:,} that came from them" if fold.descendants else ""
    files = "1 file" if fold.files == 1 else f"{fold.files:,} files"
    return f"{files}: {', '.join(ends) or 'no record'}{beyond}"


def state_of(of: JourneyFile | Fold) -> FinalState | None:
    """The state that colours a place: ERROR if any path of it failed, else the first; None: no record."""
    states = (
        [state for state, _ in of.ends] if isinstance(of, Fold) else [one.final_state for one in of.records]
    )
    return FinalState.ERROR if FinalState.ERROR in states else next(iter(states), None)
