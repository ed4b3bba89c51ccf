"""The words for a file or a fold, the same in every picture."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from waybill.facets import FinalState
from waybill.facets.record import passage_of
from waybill.transport.counting import counted, duration_text

from .lines import Fold

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

    from ..file_table import JourneyFile
    from ..index import OpenFile


def duration_of(record: ProvenanceRecord) -> str:
    """How long a path took."""
    return duration_text((record.completed - record.created) / 1_000)


def last_begun_of(file: OpenFile) -> str:
    """The last transform that an open file began, as the end of a phrase; empty if none was noted."""
    return "" if file.transform is None else f", last began {file.transform}"


def words_of(of: JourneyFile | Fold) -> list[str]:
    """The lines of text of one place in a picture."""
    if isinstance(of, Fold):
        return [said_of(of)]
    told = [f"{one.final_state}: {passage_of(one)}, {duration_of(one)}" for one in of.told]
    if (file := of.told_open) is not None:
        began = datetime.fromtimestamp(file.began_ms / 1_000, UTC)
        begun = f"begun {began:%Y-%m-%d %H:%M:%S} UTC, not ended{last_begun_of(file)}"
        told.append(f"{file.data_source}: {begun}")
    return [of.filename or of.did, *(told or ["no record"])]


def said_of(fold: Fold) -> str:
    """A fold in one line: ``312 files: 309 COMPLETE > lake, 3 ERROR``."""
    ends = [f"{paths:,} {state}{f' > {sink}' if sink else ''}" for (state, sink), paths in fold.ends.items()]
    if fold.open_files:
        ends.append(f"{fold.open_files:,} not ended")
    beyond = f", and {fold.descendants:,} that came from them" if fold.descendants else ""
    return f"{counted(fold.files, 'file')}: {', '.join(ends) or 'no record'}{beyond}"


def state_of(of: JourneyFile | Fold) -> FinalState | None:
    """The state that colours a place: ERROR if any path of it failed, else the first; None: no record."""
    states = (
        [state for state, _ in of.ends] if isinstance(of, Fold) else [one.final_state for one in of.records]
    )
    return FinalState.ERROR if FinalState.ERROR in states else next(iter(states), None)
