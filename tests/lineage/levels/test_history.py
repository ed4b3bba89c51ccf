"""The history of the levels, and the arithmetic of budgets and burn rates."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from waybill.lineage.levels.history import (
    DAY_MS,
    HOUR_MS,
    Slot,
    add_up,
    burn_rate,
    put_slot,
    read_slots,
    since,
)
from waybill.lineage.levels.measuring import count_within, quantile
from waybill.transport import Journal

if TYPE_CHECKING:
    from pathlib import Path

COUNTS = st.tuples(st.integers(0, 1_000), st.integers(0, 1_000)).map(
    lambda one: (float(one[0]), float(sum(one)))
)
SLOTS = st.lists(
    st.builds(Slot, st.integers(0, 10**6), st.dictionaries(st.sampled_from("abc"), COUNTS)), max_size=12
)
BOUNDS_S = (0.1, 0.5, 1.0)
BUCKETS = st.lists(st.integers(0, 50), min_size=4, max_size=4)


@given(SLOTS, st.integers(0, 12))
def test_slots_add_up_however_they_were_joined_before(slots: list[Slot], at: int) -> None:
    at_once, joined = add_up(0, slots), add_up(0, [add_up(0, slots[:at]), add_up(0, slots[at:])])
    assert joined.counts == at_once.counts
    for key, (good, total) in at_once.counts.items():
        assert total == sum(slot.counts[key][1] for slot in slots if key in slot.counts)
        assert 0 <= good <= total


@given(st.integers(1, 10**6), st.floats(0.0001, 0.5), st.floats(0, 1))
def test_a_budget_lasts_as_long_as_its_burn_rate_says(total: int, allowed: float, bad: float) -> None:
    rate = burn_rate(total * bad, total * allowed)
    assert rate == pytest.approx(bad / allowed)
    used = burn_rate(total * bad * 10, total * allowed * 10)
    assert used == pytest.approx(rate), "as fast over ten times the time"
    assert (1 - rate < 0) == (total * bad > total * allowed)


def test_where_nothing_is_allowed_each_failure_counts() -> None:
    assert (burn_rate(0.0, 0.0), burn_rate(3.0, 0.0)) == (0.0, 3.0)


@given(BUCKETS)
def test_the_share_of_a_quantile_is_within_it(buckets: list[int]) -> None:
    if sum(buckets[:3]) < 0.95 * sum(buckets) or not any(buckets):
        return  # beyond the last bound nothing is known
    within = count_within(buckets, BOUNDS_S, quantile(buckets, BOUNDS_S))
    assert within == pytest.approx(0.95 * sum(buckets))


def test_slots_become_hours_after_three_days_and_are_forgotten_after_ninety(home: Path) -> None:
    with contextlib.closing(Journal(home)) as journal:
        begin_ms = 1_000 * DAY_MS
        for number in range(4 * 3 * 24):
            slot = Slot(begin_ms + number * HOUR_MS // 3, {"a": (1.0, 2.0)}, {"q": (1, 0)})
            put_slot(journal, read_slots(journal), slot, {})
        slots = read_slots(journal)
        assert [slot.at_ms for slot in slots] == sorted(slot.at_ms for slot in slots)
        assert 3 * 3 * 24 <= len(slots) - 24 <= 3 * 3 * 24 + 3
        assert slots[0] == Slot(begin_ms, {"a": (3.0, 6.0)}, {"q": (3, 0)})
        assert add_up(0, slots).counts == {"a": (4 * 3 * 24.0, 4 * 3 * 24 * 2.0)}
        last_ms = slots[-1].at_ms
        assert since(slots, last_ms - HOUR_MS).counts == {"a": (3.0, 6.0)}
        put_slot(journal, slots, Slot(begin_ms + 92 * DAY_MS, {}), {})
        (first, *_) = read_slots(journal)
        assert first.at_ms >= begin_ms + 2 * DAY_MS
