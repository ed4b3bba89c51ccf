"""The choice of the next event against random backends: thousands of runs on a clock of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given, settings, strategies as st
from stored_rows import StoredRows

from waybill.marquez.acks import PAGE_ENTRIES, Acks
from waybill.marquez.backend import Answer, Verdict
from waybill.marquez.backend.answers import judge
from waybill.marquez.delivery.circuit import Circuit, full_jitter
from waybill.marquez.delivery.pending import PendingEvents
from waybill.marquez.delivery.schedule import POISON_AFTER_S, POISON_TRIES, Schedule, SendOutcome
from waybill.marquez.subject import Subject

DELIVERED = Answer(verdict=Verdict.DELIVERED, status=201)
SENT_S = 0.02


class Bench:
    """A schedule over a journal that is a list of keys, with small limits, its own clock, and a log."""

    def __init__(self, keys: Sequence[str | None], *, held_max: int = 12, read_max: int = 4) -> None:
        self.keys = keys
        self.held_max = held_max
        self.acks = Acks(0, {})
        self.pending = PendingEvents(self.acks, held_max=held_max, read_max=read_max, blocked_key_max=3)
        self.schedule = Schedule(self.pending, Random(1))  # noqa: S311 - jitter
        self.now_s = 0.0
        self.sent: list[tuple[int, Answer]] = []
        self.outcomes: dict[int, SendOutcome] = {}

    def step(self, answer_to: Callable[[int], Answer]) -> bool:
        """As one step of a delivery; False when nothing is left to wait for."""
        self.pending.stored()
        looked_at = range(0)
        if room := self.pending.room():
            after = self.pending.read_after()
            looked_at = range(after + 1, min(len(self.keys), after + room) + 1)
            for place in looked_at:
                key = self.keys[place - 1]
                self.pending.look_at(place, None if key is None else Subject(key))
        assert self.pending.held <= self.held_max
        seq = self.schedule.next(self.now_s)
        if seq is None and looked_at:
            return True
        if seq is None:
            wait_s = self.schedule.wait_s(self.now_s)
            if wait_s is None:
                return False
            self.now_s += wait_s
            return True
        answer = answer_to(seq)
        self.now_s += SENT_S + answer.elapsed_s
        self.sent.append((seq, answer))
        outcome = self.schedule.answered(seq, answer, self.now_s)
        if outcome is not SendOutcome.LATER:
            assert seq not in self.outcomes
            self.outcomes[seq] = outcome
        return True

    def run(self, answer_to: Callable[[int], Answer]) -> None:
        for _ in range(200_000):
            if self.acks.cursor == len(self.keys) or not self.step(answer_to):
                return
        raise AssertionError("it never comes to an end")


ANSWERS = st.sampled_from(
    [
        *[DELIVERED] * 4,
        Answer(verdict=Verdict.UNWELL, status=500),
        Answer(verdict=Verdict.UNWELL, elapsed_s=30.0, words="no answer within 30 s"),
        Answer(verdict=Verdict.AWAY, words="Connection refused"),
        Answer(verdict=Verdict.AWAY, status=429, retry_after_s=7.0),
        Answer(verdict=Verdict.DENIED, status=403),
    ]
)
KEYS = st.lists(st.none() | st.sampled_from("abcdef"), min_size=1, max_size=60)


@given(keys=KEYS, script=st.lists(ANSWERS, max_size=60), data=st.data())
@settings(max_examples=300)
def test_any_backend_that_recovers_gets_each_event_once_in_the_order_of_its_key(
    keys: list[str | None], script: list[Answer], data: st.DataObject
) -> None:
    refused = data.draw(st.sets(st.integers(1, len(keys)), max_size=5))
    left = iter(script)
    bench = Bench(keys)

    def answer_to(seq: int) -> Answer:
        answer = next(left, DELIVERED)
        bad = answer.verdict is Verdict.DELIVERED and seq in refused
        return Answer(verdict=Verdict.REFUSED, status=422) if bad else answer

    bench.run(answer_to)
    events = {seq for seq, key in enumerate(keys, 1) if key is not None}
    assert bench.outcomes.keys() == events
    assert bench.acks.cursor == len(keys)
    assert bench.pending.held == 0
    assert {
        seq for seq, outcome in bench.outcomes.items() if outcome is SendOutcome.PARKED
    } == refused & events
    for key in set(keys) - {None}:
        sent = [seq for seq, _ in bench.sent if keys[seq - 1] == key]
        assert sent == sorted(sent)


@given(keys=KEYS, poison=st.sets(st.integers(1, 60), max_size=4), script=st.lists(ANSWERS, max_size=30))
@settings(max_examples=150)
def test_poison_is_parked_and_nothing_else_is(
    keys: list[str | None], poison: set[int], script: list[Answer]
) -> None:
    healthy = [f"new-{number}" for number in range(600)]
    left = iter(script)
    bench = Bench([*keys, *healthy], held_max=40)

    def answer_to(seq: int) -> Answer:
        if seq in poison and seq <= len(keys):
            return Answer(verdict=Verdict.UNWELL, status=500)
        if seq > len(keys):
            bench.now_s += 1.0  # new events come slowly enough for the poison's back-off
        return next(left, DELIVERED)

    bench.run(answer_to)
    events = {seq for seq, key in enumerate([*keys, *healthy], 1) if key is not None}
    assert bench.outcomes.keys() == events
    ill = {seq for seq in poison & events if seq <= len(keys)}
    assert {seq for seq, outcome in bench.outcomes.items() if outcome is SendOutcome.PARKED} == ill


def test_after_an_outage_what_failed_in_it_is_sent_again_at_once() -> None:
    bench, delivered_s = Bench(list("abcdef")), list[float]()

    def answer_to(_: int) -> Answer:
        if bench.now_s < POISON_AFTER_S:
            return Answer(verdict=Verdict.UNWELL, status=500)
        delivered_s.append(bench.now_s)
        return DELIVERED

    bench.run(answer_to)
    assert len(delivered_s) == 6
    assert delivered_s[-1] - delivered_s[0] < 6 * SENT_S


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_an_event_that_fails_by_chance_is_not_taken_for_poison(share: float) -> None:
    chance = Random(7)  # noqa: S311 - a die
    bench = Bench([f"run-{number}" for number in range(5000)], held_max=16_384, read_max=256)
    bench.run(lambda _: Answer(verdict=Verdict.UNWELL, status=500) if chance.random() < share else DELIVERED)
    assert set(bench.outcomes.values()) == {SendOutcome.DELIVERED}
    assert len(bench.outcomes) == 5000


def test_poison_is_parked_only_after_enough_tries_and_enough_time() -> None:
    bench = Bench(["poison", *[f"run-{number}" for number in range(100_000)]])
    tries = []

    def answer_to(seq: int) -> Answer:
        if seq == 1:
            tries.append(bench.now_s)
        return Answer(verdict=Verdict.UNWELL, status=500) if seq == 1 else DELIVERED

    while 1 not in bench.outcomes:
        bench.step(answer_to)
    assert bench.outcomes[1] is SendOutcome.PARKED
    assert len(tries) > POISON_TRIES
    assert tries[-1] - tries[0] >= POISON_AFTER_S


def test_an_event_that_fails_slowly_leaves_most_of_the_time_to_others() -> None:
    slow = Answer(verdict=Verdict.UNWELL, elapsed_s=30.0)
    bench = Bench(["slow", *[f"run-{number}" for number in range(100_000)]])
    while bench.now_s < 3000 and 1 not in bench.outcomes:
        bench.step(lambda seq: slow if seq == 1 else DELIVERED)
    spent_s = 30.0 * sum(seq == 1 for seq, _ in bench.sent)
    assert spent_s <= bench.now_s / 4


@given(keys=st.lists(st.sampled_from("abc"), min_size=1, max_size=30), data=st.data())
def test_no_event_is_given_out_before_it_is_durable_that_the_one_before_it_is_dealt_with(
    keys: list[str], data: st.DataObject
) -> None:
    pending = PendingEvents(Acks(0, {}))
    out: list[int] = []
    unstored: set[str] = set()
    for seq, key in enumerate(keys, 1):
        pending.look_at(seq, Subject(key))
        for _ in range(data.draw(st.integers(0, 3))):
            act = data.draw(st.sampled_from(["take", "settle", "store"]))
            if act == "take" and pending.any_ready:
                taken = pending.take()
                in_flight = {pending.subject_of(other).key for other in out}
                assert pending.subject_of(taken).key not in in_flight | unstored
                out.append(taken)
            elif act == "settle" and out:
                unstored.add(pending.subject_of(out[0]).key)
                pending.settle(out.pop(0))
            elif act == "store":
                pending.stored()
                unstored.clear()


def test_back_off_grows_to_its_bound_and_draws_from_the_whole_range() -> None:
    rng = Random(3)  # noqa: S311 - jitter
    for tries, bound_s in ((1, 0.5), (2, 1.0), (5, 8.0), (9, 60.0), (5000, 60.0)):
        drawn = [full_jitter(rng, tries, 60.0) for _ in range(500)]
        assert 0.9 * bound_s < max(drawn) <= bound_s
        assert 0.0 <= min(drawn) < 0.1 * bound_s


def test_a_circuit_opens_at_once_when_nobody_answers_and_after_three_answers_of_trouble() -> None:
    unwell, away = Answer(verdict=Verdict.UNWELL, status=500), Answer(verdict=Verdict.AWAY)
    circuit = Circuit(Random(1))  # noqa: S311 - jitter
    circuit.failed(unwell, 10.0)
    circuit.failed(unwell, 10.0)
    assert circuit.due_s is None
    circuit.failed(unwell, 10.0)
    assert circuit.due_s is not None
    assert circuit.passed()
    assert not circuit.passed()
    circuit.failed(away, 10.0)
    assert circuit.due_s is not None
    assert 10.0 <= circuit.due_s <= 10.5


@given(
    settled=st.lists(st.integers(1, 3 * PAGE_ENTRIES), max_size=200),
    jump=st.integers(0, 2 * PAGE_ENTRIES),
    restart_every=st.integers(1, 20),
)
def test_acks_restored_from_their_rows_are_the_same(
    settled: list[int], jump: int, restart_every: int
) -> None:
    acks, stored = Acks(0, {}), StoredRows()
    expected = set()
    for number, seq in enumerate(settled):
        acks.settle(seq)
        expected.add(seq)
        if number == len(settled) // 2:
            acks.jump(max(acks.cursor, jump))
            expected |= set(range(1, jump + 1))
        if number % restart_every == 0:
            acks.save(stored)
            acks = Acks(acks.cursor, stored.rows)
    expected_cursor = next(seq for seq in range(1, 4 * PAGE_ENTRIES) if seq not in expected) - 1
    assert acks.cursor == expected_cursor
    assert acks.above == len([seq for seq in expected if seq > expected_cursor])
    assert all((seq in acks) == (seq in expected) for seq in range(1, 3 * PAGE_ENTRIES + 2))
    assert acks.next_open(1) == expected_cursor + 1
    assert len(stored.rows) <= math.ceil(3 * PAGE_ENTRIES / PAGE_ENTRIES) + 1


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ('{"code":400,"message":"Unrecognized token"}', Verdict.REFUSED),
        ('{"code":500,"message":"There was an error"}', Verdict.UNWELL),
        ('{"code":"400"}', Verdict.UNWELL),
        ('{"code":400,"message":"cut', Verdict.UNWELL),
        ("[400]", Verdict.UNWELL),
        ("<html>400</html>", Verdict.UNWELL),
        ("", Verdict.UNWELL),
    ],
)
def test_a_500_blames_the_event_only_where_its_body_says_so(words: str, verdict: Verdict) -> None:
    assert judge(500, words) is verdict
    assert judge(503, words) is Verdict.UNWELL
