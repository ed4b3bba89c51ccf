"""Explaining one file: the events its records came from, what each changed, and where the rows are."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import (
    UNREADABLE,
    AnnotationRule,
    ProvenanceRecord,
    RunEvent,
    RunState,
    canonical_did,
    decode_event,
    decode_records,
    inferred_reason,
    keep_annotations,
    merge_all,
    merge_states,
    observe,
    parents_of,
    parse_instant_us,
    record_key,
    records_of,
    spelled_alike,
)
from waybill.facets.arrow import from_table
from waybill.facets.event import EventType
from waybill.transport.journal import Kind

from .. import parquet
from ..hour_files import HourFiles
from ..incomplete import Unread
from ..names import relative
from ..parquet import Rules
from ..sources import ReceiptSource

if TYPE_CHECKING:
    from waybill.facets.folding import Said
    from waybill.facets.merge_rule import RecordKey

    from ..names import Hour
    from ..rebuilding import Wanted
    from ..sources import Source, Stored


class Folded:
    """The records of one file as the fold gives them, before a rule of annotations is applied."""

    def __init__(self, told: Iterable[ProvenanceRecord]) -> None:
        self._told: defaultdict[RecordKey, list[ProvenanceRecord]] = defaultdict(list)
        for record in told:
            self._told[record_key(record)].append(record)
        self._by_key = functools.cache(self._merged)

    def under(self, rule: AnnotationRule) -> list[ProvenanceRecord]:
        """The records that a rule makes of them, in order."""
        return list(self._by_key(rule).values())

    def _merged(self, rule: AnnotationRule) -> dict[RecordKey, ProvenanceRecord]:
        kept = (keep_annotations(one, rule) for many in self._told.values() for one in many)
        return {record_key(record): record for record in merge_all(kept)}

    def gives(self, row: ProvenanceRecord, rules: Collection[AnnotationRule]) -> bool:
        """Whether a row is what they fold to; what it was merged from may be of any of the rules."""
        at = record_key(row)
        if at not in self._told:
            return False
        folded = [self._by_key(rule)[at] for rule in rules]
        if row in folded:
            return True
        if len(folded) == 1 or all(_bare(one) != _bare(row) for one in folded):
            return False
        kept = [keep_annotations(one, rule) for one in self._told[at] for rule in rules]
        for key in {key for one in (row, *folded) for key in one.annotations or ()}:
            value = _value(row, key)
            if value not in {_value(one, key) for one in (folded if value is None else kept)}:
                return False
        return True


def _bare(record: ProvenanceRecord) -> ProvenanceRecord:
    return msgspec.structs.replace(record, annotations=None)


def _value(record: ProvenanceRecord, key: str) -> str | None:
    return (record.annotations or {}).get(key)


_Numbered = tuple[int, ProvenanceRecord]
_Found = tuple[Rules, list[_Numbered]]
"""The rules that the rows of one file were written by, and those that were looked for."""

RECORDS_SHOWN_MAX: Final = 100
"""How many records a step shows, so that a run of many outputs is explained in linear time."""

_WORDS_SEARCHED_MAX: Final = 64
_TOLD_AS: Final = {
    name: name.removesuffix("_us")
    for name in RunState.__struct_fields__
    if name not in {"run_id", "system_name", "namespace", "others", "has_properties", "first_begun_us"}
} | {
    "begun_us": "begun again",
    "endings": "ending",
    "causes": "cause",
    "late_overrides": "late overrides",
    "late_annotations": "late annotations",
}
"""By part of a run's state, how it is told to a person."""

_RANK: Final = {kind: rank for rank, kind in enumerate(EventType)}


class Place(NamedTuple):
    """Where an entry is stored: for a person, and its receipt, if the source knows its journal."""

    text: str
    receipt: str | None


class StepSeen(msgspec.Struct, frozen=True):
    """One stored event, or one array of records, and what it changed.

    Attributes:
        places: where it is stored, for a person.
        run_id: its run; None for an array of records, as are the next three.
        namespace: that of its job: one run id in two of them is two runs.
        inferred: why Waybill inferred it; None where the run itself said it.
        changed: the parts of the run's state that it changed.
        records: what would be recorded if it were the last; empty where the run says more than
            `RECORDS_SHOWN_MAX` of them.
        receipts: those of its entries, each once.
        body: the event, or an array with the records of the file, as they are stored: JSON.
    """

    places: tuple[str, ...]
    run_id: str | None
    namespace: str | None
    event_time: str | None
    event_type: str | None
    changed: tuple[str, ...]
    records: tuple[ProvenanceRecord, ...]
    inferred: str | None = None
    receipts: tuple[str, ...] = ()
    body: str = ""


class RowSeen(msgspec.Struct, frozen=True):
    """One row of the layout, and whether the stored events fold to it."""

    file: str
    row: int
    """Its number in the file, from 0."""
    record: ProvenanceRecord
    as_folded: bool


class Explanation(msgspec.Struct, frozen=True):
    """What is stored about one file: steps by run, the records that they fold to, and the layout's rows.

    Attributes:
        parents: the dids of all files that it came from, sorted; a record names the first of those that were
            joined.
        unread: a sentence about each file of the layout that could not be read, or is in quarantine: its rows
            are missing here.
    """

    did: str
    steps: tuple[StepSeen, ...]
    records: tuple[ProvenanceRecord, ...]
    rows: tuple[RowSeen, ...]
    unread: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Whether the layout has rows, and they are exactly what the stored events fold to."""
        found = {record_key(row.record) for row in self.rows}
        return (
            bool(found)
            and not self.unread
            and all(row.as_folded for row in self.rows)
            and all(record_key(record) in found for record in self.records)
        )


def explain(did: str, sources: Sequence[Source], root: Path | str, wanted: Wanted) -> Explanation:
    """Follow one file from the stored events to the rows.

    Every stored event is searched once for the file, and once more for its runs. An event that is in several
    sources counts once. A row is compared with the fold of the events under the annotation rules that its
    file names. Of `wanted` only the system name counts, and the rule that the records are shown by.

    Raises:
        SourceError: a source is damaged or cannot be reached.
        OSError: one cannot be read.
    """
    did, root = canonical_did(did), Path(root)
    events, arrays = _stored_about(did, sources, wanted)
    steps, told = _fold_steps(did, events, wanted.rule)
    for (body, system_name), places in arrays.items():
        # It may be another did that is searched for in the same way, or the parent of a file.
        every = decode_records(body, system_name=system_name)
        if found := _of(did, every):
            parts = zip(msgspec.json.decode(body, type=list[msgspec.Raw]), every, strict=True)
            own = b",".join(bytes(part) for part, record in parts if record.did == did)
            seen, kept = _stored_at(places, b"[" + own + b"]"), _kept(found, wanted.rule)
            steps.append(msgspec.structs.replace(seen, changed=("records",), records=kept))
            told += found
    folded = Folded(told)
    unread = Unread()
    rows = tuple(_rows(did, root, folded, unread))
    unread.add_known(root)
    records = tuple(folded.under(wanted.rule))
    parents = {record.parent_did for record in (*records, *(row.record for row in rows)) if record.parent_did}
    # Of the first parent the record tells, once there is one: a later event may have changed it.
    told_by_record = 1 if records or rows else 0
    for body, _ in events:
        if (event := run_event(body)) is not None and _is_about(did, event):
            parents.update(parents_of(event)[told_by_record:])
    return Explanation(did, tuple(steps), records, rows, unread.sentences, tuple(sorted(parents)))


def _stored_at(places: Sequence[Place], body: bytes) -> StepSeen:
    """A stored event of which nothing else is known yet."""
    texts = tuple(place.text for place in places)
    receipts = tuple(dict.fromkeys(place.receipt for place in places if place.receipt))
    text = body.decode(errors="backslashreplace")
    return StepSeen(texts, None, None, None, None, (), (), receipts=receipts, body=text)


_Key = tuple[bytes, str]
"""A body, and the system name stamped on it."""


def _stored_about(
    did: str, sources: Sequence[Source], wanted: Wanted
) -> tuple[dict[_Key, list[Place]], dict[_Key, list[Place]]]:
    """Find the events of this file's runs, and the arrays with records of it; each with its places."""
    arrays: dict[_Key, list[Place]] = {}
    events: dict[_Key, list[Place]] = {}
    run_ids: set[str] = set()
    for place, stored in mentioning([did], sources):
        key = (stored.body, stored.system_name or wanted.system_name)
        if stored.kind is Kind.PROVENANCE:
            arrays.setdefault(key, []).append(place)
        elif (event := run_event(stored.body)) and _is_about(did, event):
            run_ids.add(event.run.runId)
    for place, stored in mentioning(run_ids, sources) if run_ids else ():
        event = run_event(stored.body) if stored.kind is Kind.OPENLINEAGE else None
        if event and event.run.runId in run_ids:
            events.setdefault((stored.body, stored.system_name or wanted.system_name), []).append(place)
    return events, arrays


def mentioning(words: Collection[str], sources: Sequence[Source]) -> Iterator[tuple[Place, Stored]]:
    """The stored entries that may contain one of these words, in any spelling, each with its place."""
    # As JSON writes them, with or without escapes: text that has neither is searched as it is.
    forms = {
        json.dumps(spelled_alike(word), ensure_ascii=ascii_).encode()[1:-1].lower()
        for word in words
        for ascii_ in (True, False)
    }
    for source in sources:
        for part in source.parts():
            for batch in source.read(part):
                for stored in batch:
                    # Many words take longer to search for than the body to decode.
                    if stored.kind is not Kind.MARK and (
                        len(words) > _WORDS_SEARCHED_MAX or _has_any(stored.body.lower(), forms)
                    ):
                        yield _place_of(source, part, stored.at), stored


def _place_of(source: Source, part: str, at: int) -> Place:
    receipt = source.receipt(part, at) if isinstance(source, ReceiptSource) else None
    return Place(source.place(part, at), receipt)


def _has_any(body: bytes, forms: Collection[bytes]) -> bool:
    return any(form in body for form in forms)


def run_event(body: bytes) -> RunEvent | None:
    """The run event in a body; None if it contains none, or an unreadable one."""
    try:
        event = decode_event(body)
        parse_instant_us(event.eventTime)
    except UNREADABLE:
        return None
    return event if isinstance(event, RunEvent) else None


def _is_about(did: str, event: RunEvent) -> bool:
    state = observe(event, system_name="")
    facet = None if event.run.facets is None else event.run.facets.delta_file
    said = state.overrides.get("did") or state.late_overrides.get("did")
    return did in {state.run_id, None if facet is None else facet.did, None if said is None else said.value}


def _fold_steps(
    did: str, events: dict[_Key, list[Place]], rule: AnnotationRule
) -> tuple[list[StepSeen], list[ProvenanceRecord]]:
    of_runs = [
        (event, system, _stored_at(places, body))
        for (body, system), places in events.items()
        if (event := run_event(body)) is not None
    ]
    steps: list[StepSeen] = []
    told: list[ProvenanceRecord] = []
    runs: dict[tuple[str, str], _Run] = {}
    for event, system_name, stored in sorted(of_runs, key=_order):
        seen = observe(event, system_name=system_name)
        run = runs.get((seen.run_id, seen.namespace))
        before = None if run is None else run.about(seen)
        if run is None:
            run = _Run(msgspec.structs.replace(seen, outputs=(), annotations={}, records=()))
            runs[seen.run_id, seen.namespace] = run
        after = seen if before is None else merge_states(before, seen)
        run.take(after)
        changed = tuple(_changed(before, after))
        # What an event records by itself is filed by itself, whatever else its run says.
        told += _of(did, seen.records)
        so_far = _of(did, records_of(run.state())) if run.size() <= RECORDS_SHOWN_MAX else ()
        steps.append(
            msgspec.structs.replace(
                stored,
                run_id=seen.run_id,
                namespace=seen.namespace,
                event_time=event.eventTime,
                event_type=event.eventType,
                changed=changed,
                records=_kept(so_far, rule),
                inferred=inferred_reason(event) or None,
            )
        )
    faceted = {run_id for (run_id, _), run in runs.items() if run.is_faceted}
    for (run_id, _), run in runs.items():
        told += () if run_id in faceted else _of(did, records_of(run.state()))
    return steps, told


class _Run:
    """The events of one run so far, folded; adding an event costs as much as the event holds."""

    def __init__(self, rest: RunState) -> None:
        self._rest = rest
        self._outputs: dict[tuple[str, str], None] = {}
        self._annotations: dict[str, Said] = {}
        self._records: dict[RecordKey, ProvenanceRecord] = {}

    @property
    def is_faceted(self) -> bool:
        """Whether one of them carried the facet."""
        return bool(self._records)

    def size(self) -> int:
        """About how many records it says."""
        return len(self._outputs) + len(self._records)

    def about(self, seen: RunState) -> RunState:
        """The state without what another does not speak of."""
        keys = map(record_key, seen.records)
        return msgspec.structs.replace(
            self._rest,
            outputs=tuple(one for one in seen.outputs if one in self._outputs),
            annotations={key: self._annotations[key] for key in seen.annotations if key in self._annotations},
            records=tuple(self._records[key] for key in keys if key in self._records),
        )

    def take(self, merged: RunState) -> None:
        """Take over what `about` gave, once it is merged."""
        self._outputs.update(dict.fromkeys(merged.outputs))
        self._annotations.update(merged.annotations)
        self._records.update((record_key(record), record) for record in merged.records)
        self._rest = msgspec.structs.replace(merged, outputs=(), annotations={}, records=())

    def state(self) -> RunState:
        """All of the state."""
        return msgspec.structs.replace(
            self._rest,
            outputs=tuple(sorted(self._outputs)),
            annotations=dict(sorted(self._annotations.items())),
            records=tuple(merge_all(self._records.values())),
        )


def _order(one: tuple[RunEvent, str, StepSeen]) -> tuple[str, str, int, int, tuple[str, ...]]:
    event = one[0]
    return (
        event.run.runId,
        event.job.namespace,
        parse_instant_us(event.eventTime),
        _RANK[event.eventType],
        one[2].places,
    )


def _changed(before: RunState | None, after: RunState) -> Iterator[str]:
    for name in after.__struct_fields__:
        value, known = getattr(after, name), before and getattr(before, name)
        if name in _TOLD_AS and value and value != known and (name != "begun_us" or known):
            yield _TOLD_AS[name]


def _of(did: str, records: Iterable[ProvenanceRecord]) -> tuple[ProvenanceRecord, ...]:
    return tuple(record for record in records if record.did == did)


def _kept(records: Iterable[ProvenanceRecord], rule: AnnotationRule) -> tuple[ProvenanceRecord, ...]:
    return tuple(keep_annotations(record, rule) for record in records)


def _rows(did: str, root: Path, folded: Folded, unread: Unread) -> Iterator[RowSeen]:
    """The rows of the layout."""
    files = HourFiles(root)
    for hour in sorted(files.hours):
        for path, (rules, found) in _found_in(did, root, files, hour, unread):
            for number, record in found:
                yield RowSeen(relative(root, path), number, record, folded.gives(record, rules.distinct))


def _found_in(
    did: str, root: Path, files: HourFiles, hour: Hour, unread: Unread
) -> list[tuple[Path, _Found]]:
    """What each file of an hour has of a file's records."""
    while True:
        raws = files.raw(hour)
        try:
            found = [(path, _numbered(did, root, path, unread)) for path in raws.values()]
        except FileNotFoundError:
            continue  # What it held is in another file by now.
        for path in files.compacted(hour, raws):
            with contextlib.suppress(FileNotFoundError):
                found.append((path, _numbered(did, root, path, unread)))
        return found


def _numbered(did: str, root: Path, path: Path, unread: Unread) -> _Found:
    """The records of one file, each with the number of its row; raises `FileNotFoundError`."""
    found: list[_Numbered] = []
    try:
        file = parquet.open_file(path)
        rules = Rules.read(file.metadata.metadata)
        first = 0
        for at in range(file.num_row_groups):
            dids = file.read_row_group(at, ["did"], use_threads=False)["did"]
            numbers = pc.indices_nonzero(pc.equal(dids, pa.scalar(did)))
            if len(numbers):
                records = from_table(file.read_row_group(at, use_threads=False).take(numbers))
                found += zip([first + number for number in numbers.to_pylist()], records, strict=True)
            first += len(dids)
    except FileNotFoundError:
        raise
    except parquet.DAMAGED as error:
        unread.add(path, error, root)
        return Rules(), []
    return rules, found
