"""The fold: from the set of a run's events to its provenance records.

A `RunState` combines the facts from a run's events. Each part of it is the least or the greatest value of the
single events, or a union. So states merge in any order, any grouping and any number of times to the same
state, and it gives the same records. Events are ordered by (time in microseconds, rank of the type, the value
itself); the order of arrival does not matter.

An inferred end is the weakest: it counts only in a run that has stated none. The run's own terminal event
replaces it, whatever its type, however late it arrives, and also if the run was begun again since.

A run that is begun again under its id, as the cleared task of a scheduler is, ends as its last attempt did.
The latest START parts the attempts: only the terminal events since then count. In a run of one START all of
them do, also one that is timed before it; see `Attempts`. A state does not need all of them for that. Of each
kind it has the first, which counts in a run that was begun once, and the last, which counts in one that was
begun again. Events of one run id in two job namespaces are of two runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from .annotations import (
    ERROR_CAUSE,
    EVIDENCE,
    FILTERED_CAUSE,
    LISTENER_SAYS,
    MARKS,
    PART,
    REASONS,
    RESERVED,
    as_sent,
    with_filtered_cause,
)
from .attempts import Attempts, Ending, Kinded, inferred_reason, outermost
from .causes import shortened
from .event import PRODUCER, SEVERITY, EventType, RunFacets, Summary, dataset_text, parse_instant_us
from .merge_rule import merge_all
from .overrides import read_error_cause, read_sayings, split_transforms
from .record import FinalState, ProvenanceRecord, complete_values, keep_annotations, last_part, record_of
from .spark_writes import (
    APPLICATION_ENDED,
    LISTENER,
    LISTENER_ONLY,
    has_to_show,
    is_around_write,
    is_batch,
    may_hide_output,
    shows_write,
    source_of,
    written,
)

if TYPE_CHECKING:
    from .event import DeltaFile, RunEvent

_NO_FACETS = RunFacets()

_RANK = {kind: rank for rank, kind in enumerate(EventType)}

_MARKS = frozenset({PART, *MARKS})

_WITH_REASON = frozenset(map(FinalState, REASONS.values()))
FINAL_STATES: Final[tuple[FinalState, ...]] = (FinalState.ERROR, FinalState.CANCELLED, FinalState.COMPLETE)
"""The final state of a run by the severity of its end."""


class ParentSeen(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A parent facet; the least counts.

    Attributes:
        name: that of its job.
    """

    time_us: int
    rank: int
    run_id: str
    name: str = ""


class InputSeen(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """An input dataset; the least is the run's first input."""

    time_us: int
    rank: int
    position: int
    namespace: str
    name: str


class CauseSeen(Kinded, frozen=True, order=True, array_like=True, gc=False):
    """A reason why a run failed; the least counts, the standard facet before the Spark listener's own."""

    second_choice: bool
    time_us: int
    rank: int
    message: str

    @property
    def kind(self) -> bool:
        """Of causes of one kind, the first and the last are kept."""
        return self.second_choice


class Said(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A value for a field or an annotation; the greatest counts.

    A property beats a tag, because it can be set for one action; among equals an event of a Spark job beats
    others, because only it carries the values for its action; then the latest counts.
    """

    by_property: bool
    by_job: bool
    time_us: int
    rank: int
    value: str


class CoalescedSeen(msgspec.Struct, frozen=True, order=True, array_like=True, gc=False):
    """A run that stands for many files; the greatest counts.

    Attributes:
        records: how many records it stands for; 0 where its facet cannot be read.
        start_us: when its window begins, epoch microseconds; 0 where it is unknown, as is `end_us`.
        of_transform: whether it counts the files that passed a transform. Other runs have their records.
    """

    records: int = 0
    system_name: str = ""
    data_source: str = ""
    start_us: int = 0
    end_us: int = 0
    of_transform: bool = False


class RunState(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The facts from any set of events of one run; bounded by its distinct outputs, keys and namespaces.

    It encodes to msgpack and back without loss.

    Attributes:
        system_name: the name assigned to its events, for a job without a namespace.
        created_us: the earliest event, in epoch microseconds.
        namespace: that of its job.
        begun_us: the latest START, in epoch microseconds; 0: none was seen.
        first_begun_us: the first one.
        endings: of each kind of terminal event the first and the last, sorted.
        causes: of each kind of cause the first and the last, sorted.
        outputs: every output dataset as (namespace, name), sorted.
        overrides: values that replace derived fields, by field.
        annotations: values noted about the run, by key.
        records: the records of its terminal events with the `waybill_deltaFile` facet, merged and sorted.
        inferred_records: the same for inferred ends; they count until an end is known.
        sources: who has seen how it ended, of `spark_writes.SOURCES`, sorted.
        shows_write: whether an event shows that it did write.
        is_batch: whether it is a Spark query or command, which records only writes and errors.
        is_around_write: whether it is one whose files another run within it wrote.
        coalesced: the files that it counts, if it is a summary; a summary is not a file and has no record.
        others: the runs of the same id in other job namespaces, sorted; its own is the least.
        late_overrides: as `overrides`, by properties in events that begin neither the run nor a Spark job.
            The listener reads them when it sends an event, so they may be those of the next action.
        late_annotations: the same of `annotations`.
        has_properties: whether an event that begins the run or a Spark job carries properties; then these
            count, and no late ones.
    """

    run_id: str
    system_name: str
    created_us: int
    namespace: str
    begun_us: int = 0
    endings: tuple[Ending, ...] = ()
    parent: ParentSeen | None = None
    first_input: InputSeen | None = None
    causes: tuple[CauseSeen, ...] = ()
    outputs: tuple[tuple[str, str], ...] = ()
    overrides: dict[str, Said] = {}
    annotations: dict[str, Said] = {}
    records: tuple[ProvenanceRecord, ...] = ()
    inferred_records: tuple[ProvenanceRecord, ...] = ()
    sources: tuple[str, ...] = ()
    shows_write: bool = False
    is_batch: bool = False
    coalesced: CoalescedSeen | None = None
    others: tuple[RunState, ...] = ()
    late_overrides: dict[str, Said] = {}
    late_annotations: dict[str, Said] = {}
    has_properties: bool = False
    is_around_write: bool = False
    first_begun_us: int = 0

    @property
    def parts(self) -> tuple[RunState, ...]:
        """The runs of its id, one for each job namespace."""
        return (msgspec.structs.replace(self, others=()), *self.others) if self.others else (self,)

    @property
    def parent_run_id(self) -> str | None:
        """The run that started this one, as the standard parent facet names it."""
        return None if self.parent is None else self.parent.run_id

    @property
    def ending(self) -> Ending | None:
        """The terminal event that decides its record."""
        return self.attempts.ending

    @property
    def attempts(self) -> Attempts:
        """When it began and ended."""
        return Attempts(self.first_begun_us, self.begun_us, self.endings)

    @property
    def ended(self) -> bool:
        """Whether a terminal event was seen."""
        return any(state.endings for state in (self, *self.others))

    @property
    def faceted(self) -> bool:
        """Whether a terminal event of its own carried the facet, so that nothing is derived."""
        return any(state.records for state in (self, *self.others))


def observe(event: RunEvent, *, system_name: str) -> RunState:
    """Return the facts from one event; `system_name` is used if it carries no name.

    Raises:
        ValueError: a time is unreadable or out of range, which admission does not accept.
    """
    facets = event.run.facets or _NO_FACETS
    time_us, rank = parse_instant_us(event.eventTime), _RANK[event.eventType]
    inputs = (InputSeen(time_us, rank, at, *x.recorded) for at, x in enumerate(event.inputs or ()))
    cause, parent = read_error_cause(facets), facets.parent
    begins = event.eventType is EventType.START or bool(facets.spark_job_details)
    said = _read_said(facets, time_us, rank, begins=begins, is_own=event.producer == PRODUCER)
    ends_file = facets.delta_file is not None and event.eventType in SEVERITY
    told = (_facet_record(event, system_name),) if ends_file else ()
    attempts = Attempts.of(event, time_us, name=event.job.name)
    return RunState(
        run_id=event.run.runId,
        system_name=system_name,
        created_us=time_us,
        namespace=event.job.namespace,
        begun_us=attempts.last_us,
        first_begun_us=attempts.first_us,
        endings=attempts.endings,
        parent=ParentSeen(time_us, rank, parent.run.runId, parent.job.name) if parent else None,
        first_input=min(inputs, default=None),
        causes=() if cause is None else (CauseSeen(cause[0], time_us, rank, cause[1]),),
        outputs=tuple(sorted({x.recorded for x in written(event)})),
        overrides=said[0],
        annotations=said[1],
        late_overrides=said[2],
        late_annotations=said[3],
        has_properties=begins and bool(facets.spark_properties),
        records=told if facets.inferred is None else (),
        inferred_records=() if facets.inferred is None else told,
        sources=() if (source := source_of(event)) is None else (source,),
        shows_write=shows_write(event),
        is_batch=is_batch(event),
        is_around_write=is_around_write(event),
        coalesced=_coalesced_of(facets),
    )


def observe_times(event: RunEvent, time_us: int) -> RunState:
    """Return that the run of an event began or ended at this time, and how; nothing else of `observe`."""
    attempts = Attempts.of(event, time_us, name=event.job.name)
    return RunState(
        run_id=event.run.runId,
        system_name="",
        created_us=time_us,
        namespace=event.job.namespace,
        begun_us=attempts.last_us,
        first_begun_us=attempts.first_us,
        endings=attempts.endings,
    )


def _coalesced_of(facets: RunFacets) -> CoalescedSeen | None:
    if not facets.summary:
        return None
    summary = facets.read_summary() or Summary()
    try:
        start_us, end_us = parse_instant_us(summary.windowStart), parse_instant_us(summary.windowEnd)
    except ValueError:
        return CoalescedSeen()
    return CoalescedSeen(
        max(summary.records, 0),
        summary.systemName,
        summary.dataSource,
        start_us,
        end_us,
        of_transform=bool(summary.transform),
    )


def _read_said(
    facets: RunFacets, time_us: int, rank: int, *, begins: bool, is_own: bool
) -> tuple[dict[str, Said], ...]:
    """The values for fields and for annotations, and of each those by properties that may be too late."""
    by_job = bool(facets.spark_job_details)
    found: tuple[dict[str, Said], ...] = ({}, {}, {}, {})
    for saying in read_sayings(facets):
        said = Said(saying.by_property, by_job, time_us, rank, saying.value)
        is_late = saying.by_property and not begins
        target, key = found[2 * is_late + (not saying.is_field)], saying.key
        if is_own and key == "filteredCause":
            key = FILTERED_CAUSE
        elif key in RESERVED and not (is_own and key in _MARKS):
            continue
        target[key] = _greater(target.get(key), said)
    return tuple(dict(sorted(one.items())) for one in found)


def has_record(event: RunEvent) -> bool:
    """Return whether an event is a terminal one with the facet: then it alone decides its run's records.

    An inferred one does not: it may be replaced.
    """
    facets = event.run.facets
    if facets is None or facets.delta_file is None or facets.inferred is not None:
        return False
    return event.eventType in SEVERITY


def facet_values(event: RunEvent, *, system_name: str) -> tuple[Any, ...]:
    """Return the values of the record in an event of `has_record`, in the order of its fields.

    Fields that the facet omits are filled from the event; `system_name` is used if it has none. Instants
    are still texts. A reason that Waybill itself derived has its reserved name among the annotations.
    """
    facet = cast("DeltaFile", cast("RunFacets", event.run.facets).delta_file)
    final_state = facet.final_state or FINAL_STATES[SEVERITY[event.eventType]]
    annotations = facet.annotations
    if final_state in _WITH_REASON:
        annotations = _with_reason(event, facet, final_state)
    elif annotations and not RESERVED.isdisjoint(annotations):
        annotations = as_sent(annotations)
    return (
        *complete_values(facet, system_name=system_name, data_source=event.job.name),
        final_state,
        event.eventTime if facet.created is None else facet.created,
        event.eventTime if facet.completed is None else facet.completed,
        annotations,
    )


def _with_reason(event: RunEvent, facet: DeltaFile, final_state: FinalState) -> dict[str, str] | None:
    """The annotations of a facet, with the reason from the event.

    The reason of an error is derived from its text, so that redacting the text redacts the reason, too.
    """
    annotations = as_sent(facet.annotations)
    if final_state is FinalState.ERROR:
        cause = read_error_cause(cast("RunFacets", event.run.facets))
        return annotations if cause is None else _sorted({**(annotations or {}), ERROR_CAUSE: cause[1]})
    # An inferred end repeats what the pipeline itself noted at the start.
    is_tracked = event.producer == PRODUCER and not inferred_reason(event)
    return with_filtered_cause(annotations) if is_tracked else annotations


def facet_records(event: RunEvent, *, system_name: str) -> tuple[ProvenanceRecord, ...]:
    """Return the records of a terminal event with the facet; none for any other event.

    A reason that Waybill itself derived has a reserved name until `keep_annotations` applies a rule.

    Raises:
        ValueError: a time is unreadable or out of range.
    """
    return (_facet_record(event, system_name),) if has_record(event) else ()


def _facet_record(event: RunEvent, system_name: str) -> ProvenanceRecord:
    ended_ms = parse_instant_us(event.eventTime) // 1_000
    values = facet_values(event, system_name=system_name)
    created_ms, completed_ms = (
        ended_ms if text == event.eventTime else parse_instant_us(text) // 1_000 for text in values[-3:-1]
    )
    values = (*values[:-3], created_ms, completed_ms, _sorted(values[-1] or {}))
    return record_of(*values)


def merge_states(first: RunState, *others: RunState) -> RunState:
    """Merge the states of sets of events of one run: commutative, associative and idempotent.

    Many at once take little longer than their number; for states that come one by one, see `Gathered`.

    Raises:
        ValueError: they are of different runs.
    """
    if not others:
        return first
    for other in others:
        if other.run_id != first.run_id:
            raise ValueError(
                f"runs {first.run_id[:40]!r} and {other.run_id[:40]!r} are not one: "
                "merge states of one run only"
            )
    states = (first, *others)
    if all(state.namespace == first.namespace and not state.others for state in states):
        return _merge(states)
    by_namespace: defaultdict[str, list[RunState]] = defaultdict(list)
    for part in chain.from_iterable(state.parts for state in states):
        by_namespace[part.namespace].append(part)
    least, *rest = (_merge(parts) for _, parts in sorted(by_namespace.items()))
    return msgspec.structs.replace(least, others=tuple(rest))


def _merge(states: Sequence[RunState]) -> RunState:
    """Merge states of one run in one job namespace."""
    first = states[0]
    return RunState(
        run_id=first.run_id,
        system_name=max([state.system_name for state in states]),
        created_us=min([state.created_us for state in states]),
        namespace=first.namespace,
        begun_us=max([state.begun_us for state in states]),
        first_begun_us=min(filter(None, (state.first_begun_us for state in states)), default=0),
        endings=outermost([state.endings for state in states]),
        parent=_least([state.parent for state in states]),
        first_input=_least([state.first_input for state in states]),
        causes=outermost([state.causes for state in states]),
        outputs=_union([state.outputs for state in states]),
        overrides=_merge_said([state.overrides for state in states]),
        annotations=_merge_said([state.annotations for state in states]),
        late_overrides=_merge_said([state.late_overrides for state in states]),
        late_annotations=_merge_said([state.late_annotations for state in states]),
        has_properties=any(state.has_properties for state in states),
        records=_merge_records([state.records for state in states]),
        inferred_records=_merge_records([state.inferred_records for state in states]),
        sources=_union([state.sources for state in states]),
        shows_write=any(state.shows_write for state in states),
        is_batch=any(state.is_batch for state in states),
        is_around_write=any(state.is_around_write for state in states),
        coalesced=max(filter(None, (state.coalesced for state in states)), default=None),
    )


class Gathered:
    """Collects the states of one run's events as they arrive: n events take n log n, whatever each adds.

    Only states of as many events are merged with each other, so that a small one never costs a large one.
    """

    __slots__ = ("_counts", "_states")

    def __init__(self) -> None:
        self._states: list[RunState] = []
        self._counts: list[int] = []

    def add(self, state: RunState) -> None:
        """Add the state of one more event, or set of events."""
        count = 1
        while self._counts and self._counts[-1] == count:
            count += self._counts.pop()
            state = merge_states(self._states.pop(), state)
        self._states.append(state)
        self._counts.append(count)

    def whole(self) -> RunState:
        """Return the merged state; raises `IndexError` if there is none yet."""
        return merge_states(self._states[0], *self._states[1:])


_T = TypeVar("_T", ParentSeen, InputSeen)
_Part = TypeVar("_Part", str, tuple[str, str])


def _least(values: list[_T | None]) -> _T | None:
    found = [value for value in values if value is not None]
    return min(found) if found else None


def _greater(a: Said | None, b: Said) -> Said:
    return b if a is None else max(a, b)


def _union(many: Sequence[tuple[_Part, ...]]) -> tuple[_Part, ...]:
    first = many[0]
    if all(one == first for one in many[1:]):
        return first
    return tuple(sorted(set().union(*many)))


def _merge_said(many: Sequence[Mapping[str, Said]]) -> dict[str, Said]:
    if not any(many):
        return {}
    merged = dict(many[0])
    for one in many[1:]:
        for key, said in one.items():
            merged[key] = _greater(merged.get(key), said)
    return dict(sorted(merged.items()))


def _merge_records(many: Sequence[tuple[ProvenanceRecord, ...]]) -> tuple[ProvenanceRecord, ...]:
    filled = [one for one in many if one]
    if len(filled) > 1:
        return tuple(merge_all(chain.from_iterable(filled)))
    return filled[0] if filled else ()


def records_of(state: RunState) -> tuple[ProvenanceRecord, ...]:
    """Return the run's records: the facet's own, else derived ones once it has ended, else none.

    Reasons that Waybill derived have reserved names until `keep_annotations` applies a rule.
    """
    if state.others:
        parts = [part for part in state.parts if bool(part.records) == state.faceted]
        return tuple(merge_all(chain.from_iterable(map(records_of, parts))))
    if state.records:
        return state.records
    ending = state.ending
    if ending is None or state.coalesced is not None:
        return ()
    if ending.inferred and state.inferred_records:
        return (_infer(state.inferred_records[0], ending),)
    return _derive(state, ending)


def record_so_far(state: RunState, job: str) -> ProvenanceRecord:
    """Return the record of a run of a job that has not ended, as far as its end does not decide it."""
    return _derive(state, Ending(0, state.created_us, job), is_open=True)[0]


def _infer(record: ProvenanceRecord, ending: Ending) -> ProvenanceRecord:
    """Return the records of an inferred end; of several such ends the first counts."""
    annotations = {**(record.annotations or {}), EVIDENCE: _inferred(ending)}
    if record.final_state is FinalState.ERROR:
        annotations.setdefault(ERROR_CAUSE, ending.inferred)
    completed_ms = ending.time_us // 1_000
    return msgspec.structs.replace(record, completed=completed_ms, annotations=_sorted(annotations))


def _inferred(ending: Ending) -> str:
    return f"inferred: {ending.inferred}"


def _evidence_of(state: RunState, ending: Ending, final_state: FinalState) -> str:
    """Return the evidence for a derived record; empty if it is the run's own end event."""
    if ending.inferred:
        return _inferred(ending)
    if final_state is not FinalState.COMPLETE:
        return ""
    doubts = []
    is_confirmed = state.sources != (LISTENER,)
    if not is_confirmed:
        doubts.append(LISTENER_ONLY)
    has_to = LISTENER in state.sources and has_to_show(ending.name, is_confirmed=is_confirmed)
    if has_to and not state.shows_write:
        doubts.append("no sign of a write")
    return ", ".join(doubts)


def _derive(state: RunState, ending: Ending, *, is_open: bool = False) -> tuple[ProvenanceRecord, ...]:
    late = {} if state.has_properties else state.late_overrides
    fields = {name: said.value for name, said in _merge_said([state.overrides, late]).items()}
    final_state = FinalState(fields.get("final_state", FINAL_STATES[ending.severity]))
    may_be_told = final_state is FinalState.ERROR and ending.inferred != APPLICATION_ENDED
    has_none = PART in state.annotations or (not may_be_told and _is_no_write(state, ending))
    if has_none and not is_open:
        return ()
    sinks: list[str | None] = [dataset_text(*output) for output in state.outputs]
    first = state.first_input
    is_of_spark = state.is_batch or not MARKS.keys().isdisjoint(state.annotations)
    program = state.parent.name if first is None and is_of_spark and state.parent is not None else ""
    source = program or ending.name if first is None else dataset_text(first.namespace, first.name)
    return tuple(
        merge_all(
            ProvenanceRecord(
                did=fields.get("did", state.run_id),
                parent_did=fields.get("parent_did", state.parent_run_id),
                system_name=fields.get("system_name", state.namespace or state.system_name),
                data_source=fields.get("data_source", source),
                filename=fields.get("filename", last_part((program and sink) or source)),
                transforms=split_transforms(fields.get("transforms", "")) or (ending.name,),
                data_sink=fields.get("data_sink", sink),
                final_state=final_state,
                created=state.created_us // 1_000,
                completed=ending.time_us // 1_000,
                annotations=_annotations_of(state, ending, final_state),
            )
            for sink in sinks or [None]
        )
    )


def _is_no_write(state: RunState, ending: Ending) -> bool:
    """Whether a run is a query or command of Spark's that wrote nothing itself."""
    has_output = bool(state.outputs) or LISTENER_SAYS in state.annotations or may_hide_output(ending.name)
    return state.is_batch and (state.is_around_write or not has_output)


def _annotations_of(state: RunState, ending: Ending, final_state: FinalState) -> dict[str, str] | None:
    late = {} if state.has_properties else state.late_annotations
    said = _merge_said([state.annotations, late])
    annotations = {key: one.value for key, one in said.items() if key not in RESERVED}
    if evidence := _evidence_of(state, ending, final_state):
        annotations[EVIDENCE] = evidence
    annotations |= {mark: state.annotations[mark].value for mark in MARKS if mark in state.annotations}
    if FILTERED_CAUSE in state.annotations and final_state is FinalState.FILTERED:
        annotations[FILTERED_CAUSE] = shortened(state.annotations[FILTERED_CAUSE].value)
    if final_state is FinalState.ERROR and (cause := _cause_of(state, ending)):
        annotations[ERROR_CAUSE] = cause
    return _sorted(annotations)


def _cause_of(state: RunState, ending: Ending) -> str:
    """Return why a run failed; for an inferred end without a reason, why it was inferred.

    The causes of earlier attempts do not count.
    """
    since_us = state.attempts.since_us
    if ending.time_us < since_us:  # it was begun again, and has not ended since
        cause = max(state.causes, key=lambda cause: (cause.time_us, cause), default=None)
    else:
        since_us = since_us if any(one.time_us < since_us for one in state.endings) else 0
        cause = min((one for one in state.causes if one.time_us >= since_us), default=None)
    return ending.inferred if cause is None else cause.message


def _sorted(annotations: dict[str, str]) -> dict[str, str] | None:
    return dict(sorted(annotations.items())) or None


def fold(events: Iterable[RunEvent], *, system_name: str) -> list[ProvenanceRecord]:
    """Fold a whole set of events, of any runs in any order, to its records, sorted as `merge_all` sorts them.

    All annotations are kept.

    Raises:
        ValueError: a time in an event is unreadable or out of range.
    """
    runs: defaultdict[str, list[RunState]] = defaultdict(list)
    for event in events:
        runs[event.run.runId].append(observe(event, system_name=system_name))
    records = (record for states in runs.values() for record in records_of(merge_states(*states)))
    return merge_all(map(keep_annotations, records))
