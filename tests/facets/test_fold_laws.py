"""The laws of the fold: whatever the order, the repetition, the batching, the records are the same."""

from __future__ import annotations

import random

import msgspec
from events import members
from hypothesis import given, strategies as st

from waybill.facets import (
    EVIDENCE,
    PRODUCER,
    ProvenanceRecord,
    RunEvent,
    RunState,
    decode_event,
    facet_records,
    fold,
    inferred_reason,
    keep_annotations,
    merge_all,
    merge_states,
    observe,
    parse_instant_us,
    records_of,
)

EVENTS = st.lists(st.from_type(RunEvent), max_size=8)
RANDOMS = st.randoms(use_true_random=False)


def of_one_run(event: RunEvent) -> RunEvent:
    return msgspec.structs.replace(event, run=msgspec.structs.replace(event.run, runId="r"))


def state_of(events: list[RunEvent], stamps: list[str]) -> RunState:
    first, *rest = (observe(event, system_name=stamp) for event, stamp in zip(events, stamps, strict=False))
    for state in rest:
        first = merge_states(first, state)
    return first


STATES = st.builds(
    state_of,
    st.lists(st.from_type(RunEvent).map(of_one_run), min_size=1, max_size=3),
    st.lists(st.sampled_from(["", "host", "other"]), min_size=3, max_size=3),
)


@given(st.from_type(RunEvent), st.sampled_from(["", "host"]))
def test_what_an_event_records_by_itself_is_what_is_observed(event: RunEvent, stamp: str) -> None:
    assert facet_records(event, system_name=stamp) == observe(event, system_name=stamp).records


@given(STATES, STATES, STATES)
def test_merging_states_is_commutative_associative_and_idempotent(
    a: RunState, b: RunState, c: RunState
) -> None:
    merged = merge_states(a, b)
    assert merged == merge_states(b, a)
    assert merge_states(merged, c) == merge_states(a, merge_states(b, c))
    assert merge_states(a, a) == a
    assert merge_states(merged, a) == merge_states(merged, b) == merged


@given(STATES, STATES)
def test_a_state_survives_msgpack_and_equal_states_have_equal_bytes(a: RunState, b: RunState) -> None:
    state = merge_states(a, b)
    packed = msgspec.msgpack.encode(state)
    unpacked = msgspec.msgpack.decode(packed, type=RunState)
    assert unpacked == state
    assert msgspec.msgpack.encode(unpacked) == packed == msgspec.msgpack.encode(merge_states(b, a))
    assert records_of(unpacked) == records_of(state)


def run_by_run(events: list[RunEvent]) -> list[ProvenanceRecord]:
    runs = {event.run.runId for event in events}
    return merge_all(
        record
        for run in runs
        for record in fold([event for event in events if event.run.runId == run], system_name="host")
    )


@given(EVENTS, RANDOMS)
def test_any_interleaving_and_repetition_of_runs_folds_as_run_by_run(
    events: list[RunEvent], chance: random.Random
) -> None:
    expected = run_by_run(events)
    again = events + chance.choices(events, k=len(events)) if events else []
    chance.shuffle(again)
    assert fold(again, system_name="host") == expected


@given(EVENTS, RANDOMS)
def test_stored_states_fold_as_the_whole_set_does(events: list[RunEvent], chance: random.Random) -> None:
    stored: dict[str, bytes] = {}
    again = events * 2
    chance.shuffle(again)
    for event in again:
        state = observe(event, system_name="host")
        if state.run_id in stored:
            known = msgspec.msgpack.decode(stored[state.run_id], type=RunState)
            state = merge_states(known, state)
        stored[state.run_id] = msgspec.msgpack.encode(state)
    states = (msgspec.msgpack.decode(packed, type=RunState) for packed in stored.values())
    assert merge_all(keep_annotations(record) for state in states for record in records_of(state)) == fold(
        events, system_name="host"
    )


@given(EVENTS)
def test_a_run_gives_records_once_it_has_ended_and_not_before(events: list[RunEvent]) -> None:
    terminal = {event.run.runId for event in events if event.eventType in {"COMPLETE", "ABORT", "FAIL"}}
    for run in {event.run.runId for event in events}:
        records = fold([event for event in events if event.run.runId == run], system_name="host")
        assert bool(records) == (run in terminal)


TERMINAL = ("COMPLETE", "ABORT", "FAIL")
INFERRED_ENDS = st.lists(
    st.builds(
        lambda kind, run, reason, facets: decode_event(
            msgspec.json.encode(
                {
                    "eventTime": "2026-01-03T00:00:00Z",
                    "eventType": kind,
                    "run": {"runId": run, "facets": {**facets, "waybill_inferred": {"reason": reason}}},
                    "job": {"namespace": "ns", "name": "inferred"},
                    "producer": PRODUCER,
                }
            )
        ),
        st.sampled_from(TERMINAL),
        st.sampled_from(["r1", "r2", "r3"]),
        st.sampled_from(["stale", "the program that ran it is gone"]),
        st.sampled_from([{}, {"waybill_deltaFile": {"did": "d1", "filename": "f"}}]),
    ),
    max_size=4,
)


def run_of(event: RunEvent) -> tuple[str, str]:
    """The run that an event is of: an id in a job namespace."""
    return event.run.runId, event.job.namespace


def ended_by_themselves(events: list[RunEvent]) -> set[tuple[str, str]]:
    """The runs with an end of their own, also if they were begun again after it."""
    return {run_of(one) for one in events if one.eventType in TERMINAL and not inferred_reason(one)}


@given(EVENTS, INFERRED_ENDS, RANDOMS)
def test_an_inferred_end_changes_nothing_of_a_run_that_has_an_end_of_its_own(
    events: list[RunEvent], inferred: list[RunEvent], chance: random.Random
) -> None:
    ended = ended_by_themselves(events)
    both = [one for one in (*events, *inferred) if run_of(one) in ended]
    chance.shuffle(both)
    assert fold(both, system_name="host") == run_by_run([one for one in events if run_of(one) in ended])


@given(EVENTS, INFERRED_ENDS)
def test_the_records_of_inferred_ends_and_no_others_say_so(
    events: list[RunEvent], inferred: list[RunEvent]
) -> None:
    ended = ended_by_themselves(events)
    for run in map(run_of, events):
        own = [one for one in events if run_of(one) == run]
        of_run = [*own, *(one for one in inferred if run_of(one) == run)]
        has_inferred = any(one.eventType in TERMINAL and inferred_reason(one) for one in of_run)
        for record in fold(of_run, system_name="host"):
            is_marked = (record.annotations or {}).get(EVIDENCE, "").startswith("inferred: ")
            assert is_marked == (run not in ended)
            assert has_inferred or not is_marked


STEPS = st.lists(
    st.tuples(st.sampled_from(("START", "RUNNING", *TERMINAL)), st.integers(0, 9)), min_size=1, max_size=6
)


@given(STEPS, st.integers(0, 12), RANDOMS)
def test_no_clock_order_or_repetition_lets_an_inferred_end_replace_a_stated_one(
    steps: list[tuple[str, int]], inferred_s: int, chance: random.Random
) -> None:
    stated = [at_second(kind, second) for kind, second in steps]
    inferred = at_second("ABORT", inferred_s, {"waybill_inferred": {"reason": "nothing was heard of it"}})
    alone = fold(stated, system_name="host")
    again = [*stated, inferred, *chance.choices([*stated, inferred], k=4)]
    chance.shuffle(again)
    found = fold(again, system_name="host")
    assert found == fold([*stated, inferred], system_name="host")
    told = [(one.final_state, one.completed, one.annotations) for one in found]
    assert told == [(one.final_state, one.completed, one.annotations) for one in alone] or not alone
    assert alone or [one.final_state for one in found] == ["CANCELLED"]


def at_second(kind: str, second: int, facets: dict[str, object] | None = None) -> RunEvent:
    at = f"2026-01-03T00:00:{second:02}Z"
    decoded = decode_event(msgspec.json.encode(members("r", kind, at, facets=facets or {}, job="ns/job")))
    assert isinstance(decoded, RunEvent)
    return decoded


ENDS = st.lists(st.sampled_from(TERMINAL), max_size=3, unique=True)
ONE_ATTEMPT = st.lists(st.sampled_from(TERMINAL), max_size=5).map(lambda ends: [ends])


@given(st.lists(ENDS, min_size=1, max_size=5) | ONE_ATTEMPT, RANDOMS)
def test_a_run_that_is_begun_again_ends_as_its_last_attempt_that_ended_did(
    attempts: list[list[str]], chance: random.Random
) -> None:
    kinds = [(kind, at) for at, ends in enumerate(attempts) for kind in ("START", *ends)]
    events = [at_second(kind, second, said(kind, at)) for second, (kind, at) in enumerate(kinds)]
    of_last = [at for at, ends in enumerate(attempts) if ends]
    chance.shuffle(events)
    made = fold(events, system_name="host")
    if not of_last:
        assert made == []
        return
    (record,) = made
    decides = max(attempts[of_last[-1]], key=("COMPLETE", "ABORT", "FAIL").index)
    if of_last[-1] < len(attempts) - 1:
        decides = attempts[of_last[-1]][-1]  # it was begun again: what its last attempt said last
    state = {"COMPLETE": "COMPLETE", "ABORT": "CANCELLED", "FAIL": "ERROR"}[decides]
    assert record.final_state == state
    ended_s = kinds.index((decides, of_last[-1]))
    assert record.completed == (parse_instant_us(f"2026-01-03T00:00:{ended_s:02}Z")) // 1_000
    if state == "ERROR":
        assert record.annotations == {"errorCause": f"attempt {of_last[-1]}"}


def said(kind: str, attempt: int) -> dict[str, object]:
    """The facets of an event: a failure says of which attempt it is."""
    message = {"message": f"attempt {attempt}", "programmingLanguage": "PYTHON"}
    return {"errorMessage": message} if kind == "FAIL" else {}


def test_a_state_does_not_grow_with_repeats_of_what_it_knows() -> None:
    event = msgspec.json.decode(
        b"""{"eventTime": "2026-01-01T00:00:00Z", "eventType": "RUNNING", "producer": "p",
          "run": {"runId": "r", "facets": {"tags": {"tags": [{"key": "env", "value": "prod"}]}}},
          "job": {"namespace": "n", "name": "j"}, "outputs": [{"namespace": "o", "name": "x"}]}""",
        type=RunEvent,
    )
    state = observe(event, system_name="host")
    size = len(msgspec.msgpack.encode(state))
    for second in range(1, 60):
        later = msgspec.structs.replace(event, eventTime=f"2026-01-01T00:00:{second:02}Z")
        state = merge_states(state, observe(later, system_name="host"))
    assert len(msgspec.msgpack.encode(state)) == size
