"""The view of a file: its records, its journey, when what happened, and the proof of it."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from waybill.exporter.verification import Explanation, StepSeen
from waybill.facets import FinalState, ProvenanceRecord, parse_instant_us
from waybill.facets.annotations import REASONS
from waybill.facets.record import passage_of
from waybill.lineage import Journey, JourneyFile, ToldJourney
from waybill.lineage.answers import ReceiptStatus
from waybill.lineage.drawing import (
    OPENED_AT_ONCE,
    Arrow,
    Fold,
    box_of,
    duration_of,
    last_begun_of,
    outline,
    places_of_lines,
)
from waybill.lineage.graph import number_of
from waybill.lineage.index import shown_as
from waybill.transport.counting import counted
from waybill.transport.journal import Receipt

from ..http import read_params
from .charts import Span, time_row
from .drawing import Drawing, Unfolding
from .finding import record_rows
from .rendering import link
from .view import View

if TYPE_CHECKING:
    from waybill.lineage.answers import HomeAnswers
    from waybill.lineage.drawing import Box, Line
    from waybill.lineage.index import JobRun, OpenFile
    from waybill.lineage.journey import ToldFile

    from .view import Rows

BODY_CHARS_MAX: Final = 20_000
"""So much of a stored event is shown; the JSON of the view has it whole."""

RECEIPTS_MAX: Final = 50
"""Of so many entries it is said how they got to the backends, the last ones."""

ROWS_MAX: Final = 100
MOMENTS_MAX: Final = 500
"""So many paths and events, the last ones, are drawn in the time line."""

_OF: Final = "of-"
"""What a key begins with that shows some more children of a file."""

_PARENTS: Final = "from"
"""The key that shows some more parents of a file that many were joined to."""


class FileParams(msgspec.Struct, frozen=True):
    """The parameters of the view.

    Attributes:
        did: the file.
        unfold: what of the drawing is unfolded; see `Unfolding`.
        proof: whether to search the stored events, which takes the longer the more there are.
    """

    did: str
    unfold: str = ""
    proof: bool = False


class FileShown(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a file.

    Attributes:
        journey: the file with what it came from and what came from it, as far as it is unfolded; before that,
            as `waybill trace --depth 1 --json` says.
        drawing: the same as it is drawn.
        proof: as `waybill explain --json` says; None: that was not asked.
        is_proven: whether the rows are what the stored events say; None: that was not asked.
        entries: how the last entries of the file got into files and to the backends, by their receipts.
        left_out: of how many more entries that is not said.
    """

    journey: ToldJourney
    drawing: Drawing
    proof: Explanation | None = None
    is_proven: bool | None = None
    entries: tuple[ReceiptStatus, ...] = ()
    left_out: int = 0

    @property
    def _files(self) -> dict[str, ToldFile]:
        return {file.did: file for file in self.journey.files}

    @property
    def records(self) -> tuple[ProvenanceRecord, ...]:
        """The records of the file, the oldest first."""
        return self._files[self.journey.did].records

    @property
    def run(self) -> JobRun | None:
        """What it is if it is a run and no file."""
        return self._files[self.journey.did].run

    @property
    def told(self) -> list[ProvenanceRecord]:
        """The records as people are shown them."""
        return shown_as(self.records, {self.journey.did: self.run} if self.run else {})

    @property
    def unreached(self) -> tuple[ProvenanceRecord, ...]:
        """The paths that ended before the sink that they name."""
        return tuple(one for one in self.told if one.data_sink and one.final_state != FinalState.COMPLETE)

    @property
    def open(self) -> OpenFile | None:
        """What is known of the file if it has not ended."""
        return self._files[self.journey.did].open

    @property
    def name(self) -> str:
        """What the file is called."""
        return self.name_of(self.journey.did)

    def name_of(self, did: str) -> str:
        """What a file of the journey is called; its did, if that is not known."""
        file = self._files.get(did)
        if file is not None and file.run is not None:
            return file.run.job
        known = file and (file.records[0] if file.records else file.open)
        return (known and known.filename) or did

    @property
    def reasons(self) -> list[tuple[ProvenanceRecord, str]]:
        """Why paths of the file ended with an error, or were filtered."""
        return [
            (record, record.annotations[key])
            for record in self.records
            for key in REASONS
            if record.annotations and key in record.annotations
        ]

    def body(self, step: StepSeen) -> tuple[str, int]:
        """A stored event as people read it, and how many characters of it are left out."""
        text = msgspec.json.format(step.body.encode(errors="backslashreplace"), indent=2).decode()
        return text[:BODY_CHARS_MAX], max(len(text) - BODY_CHARS_MAX, 0)

    def time_line(self) -> TimeLine | None:
        """When the paths of the file began and ended and, with the proof, when its events happened."""
        steps = self.proof.steps if self.proof else ()
        moments = [
            (parse_instant_us(step.event_time) // 1_000, f"{step.event_type} at {step.event_time}")
            for step in steps
            if step.event_time
        ]
        times = [at for one in self.records for at in (one.created, one.completed)] + [
            at for at, _ in moments
        ]
        times += [] if self.open is None else [self.open.began_ms, self.open.last_ms]
        if not times:
            return None
        first, last = min(times), max(times)

        def share(at_ms: int) -> float:
            return (at_ms - first) / max(last - first, 1)

        rows = []
        for one in self.told[-ROWS_MAX:]:
            text = f"{one.final_state}: {passage_of(one)}, {duration_of(one)}"
            rows.append((text, [Span(share(one.created), share(one.completed), one.final_state, text)]))
        if self.open is not None:
            text = f"not ended: {self.open.data_source}{last_begun_of(self.open)}"
            rows.append((text, [Span(share(self.open.began_ms), 1.0, "open", text)]))
        if moments:
            told = [Span(share(at), share(at), "moment", text) for at, text in moments[-MOMENTS_MAX:]]
            rows.append((counted(len(moments), "stored event"), told))
        return TimeLine(first, last, [(text, time_row(spans, text)) for text, spans in rows])


class TimeLine(NamedTuple):
    """Rows with their texts as drawings, and from when to when they go, in epoch milliseconds."""

    first_ms: int
    last_ms: int
    rows: list[tuple[str, str]]


def ask_file(answers: HomeAnswers, params: FileParams) -> FileShown:
    """Ask what is shown of a file."""
    kept = {"did": params.did} | ({"proof": "true"} if params.proof else {})
    unfolding = Unfolding("/file", kept, params.unfold)
    keys = Counter(unfolding.keys)
    opened = set(keys)
    journey = answers.trace(
        params.did, up=True, down=True, depth=1, is_opened=lambda did: _key(did) in opened
    )
    shown = FileShown(journey=journey.told(), drawing=_drawn(answers, journey, unfolding, keys))
    if not params.proof:
        return shown
    proof = answers.explain(params.did)
    answers.notes.update(dict.fromkeys(proof.unread))
    receipts = list(dict.fromkeys(chain.from_iterable(step.receipts for step in proof.steps)))
    found = (answers.locate(one) for text in receipts[-RECEIPTS_MAX:] if (one := Receipt.parse(text)))
    return msgspec.structs.replace(
        shown,
        proof=proof,
        is_proven=proof.is_proven,
        entries=tuple(filter(None, found)),
        left_out=max(len(receipts) - RECEIPTS_MAX, 0),
    )


def _key(did: str, of: str = "") -> str:
    return f"{of}{number_of(did):x}"


def _drawn(answers: HomeAnswers, journey: Journey, unfolding: Unfolding, keys: Counter[str]) -> Drawing:
    wide = journey.files if any(key.startswith(_OF) for key in keys) else ()
    counts = {did: OPENED_AT_ONCE * keys[_key(did, _OF)] for did in wide}
    lines, hidden = _lines_of(journey, counts, parents_max=OPENED_AT_ONCE * (1 + keys[_PARENTS]))
    places, arrows = places_of_lines(lines)
    rim = [one.did for one in places if isinstance(one, JourneyFile) and _key(one.did) not in keys]
    children = answers.children(rim)
    boxes = [_box_of(one, journey, children, unfolding) for one in places]
    if hidden:
        about = [box.is_about for box in boxes].index(True)
        arrows.append(Arrow(len(boxes), about))
        fold = Fold(journey.did, hidden, {}, 0, 0)
        box = msgspec.structs.replace(box_of(fold), words=[f"{hidden:,} more files that it came from"])
        boxes.append(unfolding.some(box, _PARENTS))
    return Drawing(boxes, arrows)


def _lines_of(journey: Journey, counts: dict[str, int], parents_max: int) -> tuple[list[Line], int]:
    """The lines of a journey without those of parents too many, and how many these are."""
    lines: list[Line] = []
    begun = hidden = 0
    for line in outline(journey, shown=counts):
        if line.parent is None:
            begun += 1
            hidden += begun > parents_max
        if begun <= parents_max:
            lines.append(line)
    return lines, hidden


def _box_of(
    of: JourneyFile | Fold, journey: Journey, children: dict[str, set[str]], unfolding: Unfolding
) -> Box:
    if isinstance(of, Fold):
        return unfolding.some(box_of(of), _key(of.did, _OF))
    if of.did == journey.did:
        return box_of(of, is_about=True)
    beyond = children.get(of.did, set()).union(of.parents) - journey.files.keys()
    return unfolding.around(box_of(of), _key(of.did), link("/file", did=of.did), len(beyond))


def rows_of(shown: FileShown) -> Rows:
    """The records of the file as a table."""
    return record_rows(shown.records)


def draw(shown: FileShown, _: FileParams, *, is_alone: bool) -> str:
    """The journey of the file, as far as it is unfolded."""
    return shown.drawing.svg(f"The journey of {shown.name}", is_alone=is_alone)


_READ: Any = partial(read_params, kind=FileParams)
FILE: Final = View("/file", "File", _READ, ask_file, rows_of, draw, lambda params: params.proof)
