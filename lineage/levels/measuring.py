"""Measuring the service levels of a home, what is left of their error budgets, and how fast it burns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from waybill.facets.event import dataset_text
from waybill.transport import locks
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.counting import counted, duration_text

from .counting import SHARE, Breach, Counted, DatasetCounts, OfLevels, place_of
from .declared import read_declared
from .history import DAY_MS, EVERY_MS, HOUR_MS, OWNER, Slot, burn_rate, put_slot, read_slots, since
from .intake import failures_since, lags_since
from .objectives import TIERS, MaintenanceWindow, Sli

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

    from ..answers import GraphAnswers, HomeAnswers
    from .declared import Declared
    from .objectives import Plan

Bound = Literal["at_least", "at_most"]
Unit = Literal["ratio", "seconds", "count"]

OF_TIERS: Final = (*(Sli.COVERAGE, Sli.FRESHNESS, Sli.COMPLETENESS, Sli.ACCURACY, Sli.MISSING_PROVENANCE),)
"""The levels that are about datasets, so that each tier has its own."""

_BUDGET: Final = "30d"
_SPANS_MS: Final = {"1h": HOUR_MS, "6h": 6 * HOUR_MS, "3d": 3 * DAY_MS, _BUDGET: 30 * DAY_MS}
"""The windows of burn rates, and the time that an error budget is for."""
TIMED: Final = (Sli.QUERY_LATENCY, Sli.IMPACT_ANALYSIS)
"""The levels of which a collector tells how long its answers took."""
_FLOORS: Final = (Sli.COVERAGE, Sli.COMPLETENESS, Sli.ACCURACY)
_SECONDS: Final = (Sli.FRESHNESS, Sli.INGESTION_LAG, Sli.QUERY_LATENCY, Sli.IMPACT_ANALYSIS)
_LATEST: Final = "latest"
_SERVED: Final = "served"
_STALE_MS: Final = 3 * EVERY_MS
_COUNT_MIN: Final = round(1 / (1 - SHARE))
"""Of fewer questions, a single slow one, as the first is, would be more than may be slow."""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """A service level.

    Attributes:
        sli: which one.
        tier: of the datasets; empty of a level that is not about datasets.
        value: in its unit; None: it is unknown.
        unit: of the value and the objective.
        bound: whether the value should be at least or at most the objective.
        objective: None: nothing is promised.
        is_met: None: the value is unknown, or nothing is promised.
        good: how many of those that are counted are good; None: nothing is counted.
        total: how many are counted.
        budget_left: the part of the error budget of 30 days that is left; negative: more was used; None:
            there is no history.
        burn_rates: by window, `1h`, `6h` and `3d`, how many times as fast as allowed the budget is used.
        unknown: why the value is unknown; empty: it is known.
        note: what stands beside the value.
        clocks_ahead: of freshness, of how many datasets a sender told last whose clock was ahead, so that
            they are as old as its receipt.
    """

    sli: Sli
    tier: str
    value: float | None
    unit: Unit
    bound: Bound
    objective: float | None
    is_met: bool | None
    good: float | None
    total: float | None
    budget_left: float | None
    burn_rates: dict[str, float]
    unknown: str = ""
    note: str = ""
    clocks_ahead: int = 0

    @property
    def key(self) -> str:
        """Its name in the history, such as ``coverage/critical``."""
        return _key(self.sli, self.tier)

    def text(self, value: float | None) -> str:
        """A value in its unit, as people read it; empty for none."""
        if value is None:
            return ""
        if self.unit == "seconds":
            return duration_text(value)
        return f"{value:.2%}" if self.unit == "ratio" else f"{value:g}"


class Levels(msgspec.Struct, frozen=True, kw_only=True):
    """The service levels of a home.

    Attributes:
        measured_ms: when they were measured, in epoch milliseconds.
        levels: the levels, each by tier.
        breaches: datasets that miss what is promised of them, the critical ones first.
        breaches_left_out: how many more there are.
        maintenance: the maintenance windows of this moment.
    """

    measured_ms: int
    levels: tuple[Level, ...]
    breaches: tuple[Breach, ...]
    breaches_left_out: int
    maintenance: tuple[MaintenanceWindow, ...]

    def is_held(self, sli: str, namespace: str, dataset: str) -> bool:
        """Whether a maintenance window of this moment is about a level and, unless it is empty, a dataset."""
        name = dataset_text(namespace, dataset) if dataset else ""
        return any(window.is_about(Sli(sli), name) for window in self.maintenance)

    @property
    def missed(self) -> tuple[Level, ...]:
        """The levels whose objective is missed."""
        return tuple(level for level in self.levels if level.is_met is False)


class Served(msgspec.Struct, frozen=True, array_like=True):
    """What a collector has counted since it began.

    Attributes:
        boot: one text for each start of a collector.
        requests: how many requests it has answered.
        refused: how many of them because a key or a role was missing.
        bounds_s: the upper bounds of the buckets of `latencies` but the last, which has none.
        latencies: by level, how many questions took how long.
    """

    boot: str
    requests: int
    refused: int
    bounds_s: tuple[float, ...]
    latencies: dict[str, tuple[int, ...]]

    def less(self, before: Served | None) -> Served:
        """What was counted since `before`; everything, if that was another start."""
        if before is None or before.boot != self.boot or before.bounds_s != self.bounds_s:
            return self
        latencies = {
            sli: tuple(now - then for now, then in zip(took, before.latencies[sli], strict=True))
            for sli, took in self.latencies.items()
        }
        requests, refused = self.requests - before.requests, self.refused - before.refused
        return Served(self.boot, requests, refused, self.bounds_s, latencies)


class _Reading(NamedTuple):
    """What a level is now: its value, what is counted of it for the history, and why it is unknown.

    An objective of a dataset's own counts instead of its tier's.
    """

    value: float | None = None
    counted: Counted | None = None
    unknown: str = ""
    note: str = ""
    objective: float | None = None
    clocks_ahead: int = 0


_Readings = dict[tuple[Sli, str], _Reading]


def measure(
    answers: GraphAnswers | HomeAnswers,
    journal: Journal,
    plan: Plan,
    *,
    served: Served | None = None,
    history: Journal | None = None,
    now_ms: int | None = None,
) -> Levels:
    """Measure the levels of a home.

    Args:
        answers: answers questions about its graph.
        journal: its journal, which may be open to read only.
        plan: what is promised.
        served: what its collector has counted so far; None: this is no collector.
        history: the journal into which they are recorded, if 5 minutes have passed since the last time and,
            unless this is the collector, none is running; None: they are not.
        now_ms: as of when, in epoch milliseconds; None: now.

    Raises:
        JournalError: the journal or the index cannot be read, or the history not written.
    """
    now_ms = SYSTEM_CLOCK.now_ms() if now_ms is None else now_ms
    declared = read_declared(plan)
    found = answers.answer(OfLevels(plan.file, declared, now_ms))
    slots = read_slots(journal)
    last_ms = slots[-1].at_ms if slots else 0
    is_due = now_ms - last_ms >= EVERY_MS
    if answers.waiting:  # they may tell of the datasets that seem to be late
        found = DatasetCounts({}, {}, {}, (), 0)
    readings = _of_datasets(found, declared, _LACKING if answers.waiting else "")
    since_ms = max(last_ms, now_ms - HOUR_MS)
    readings |= _of_entries(journal, plan, now_ms, since_ms)
    before = _read_served(journal)
    slot = _slot_of(now_ms, readings, plan, None if served is None else served.less(before))
    if is_due:
        slots = [*slots, slot]
    bounds_s = (served or before or _NONE).bounds_s
    readings |= _of_collector(since(slots, now_ms - HOUR_MS), bounds_s)
    spans = {name: since(slots, now_ms - span_ms) for name, span_ms in _SPANS_MS.items()}
    begun_ms = {
        name: one.at_ms for one in reversed(slots) for name, counts in one.counts.items() if counts[1]
    }
    parts = {name: (now_ms - at_ms + EVERY_MS) / _SPANS_MS[_BUDGET] for name, at_ms in begun_ms.items()}
    levels = tuple(
        _level(key, reading, plan.file.objectives.of(*key), spans, parts)
        for key, reading in _in_order(readings)
    )
    measured = Levels(
        measured_ms=now_ms,
        levels=levels,
        breaches=found.breaches,
        breaches_left_out=found.in_breach - len(found.breaches),
        maintenance=plan.file.active_windows(now_ms),
    )
    if is_due and history is not None and (served or not locks.is_held(journal.home, locks.COLLECTOR)):
        rows = {_LATEST: msgspec.json.encode(measured)}
        rows |= {} if served is None else {_SERVED: msgspec.msgpack.encode(served)}
        put_slot(history, slots[:-1], slot, rows)
    return measured


def read_latest(journal: Journal) -> Levels | None:
    """The levels as they were recorded last; None: never, or not within the last 15 minutes."""
    now_ms = SYSTEM_CLOCK.now_ms()
    row = journal.state_get(OWNER, _LATEST)
    found = None if row is None else _LEVELS.decode(row)
    return found if found is not None and now_ms - found.measured_ms <= _STALE_MS else None


def _read_served(journal: Journal) -> Served | None:
    row = journal.state_get(OWNER, _SERVED)
    return None if row is None else _SERVED_DECODER.decode(row)


def _of_datasets(found: DatasetCounts, declared: Declared, lacking: str) -> _Readings:
    lacks = {Sli.COVERAGE: declared.coverage_lack, Sli.ACCURACY: declared.accuracy_lack}
    lacks = dict.fromkeys(OF_TIERS, lacking) if lacking else lacks
    readings: _Readings = {}
    for sli in OF_TIERS:
        for tier in TIERS:
            good, total = counts = found.counts.get((sli, tier), (0, 0))
            if lacks.get(sli):
                readings[sli, tier] = _Reading(unknown=lacks[sli])
            elif sli is Sli.FRESHNESS:
                age_s, goal_s = found.ages_s.get(tier, (None, None))
                unknown = _NO_DATA[sli] if age_s is None else ""
                ahead = found.ahead.get(tier, 0)
                some = counted(ahead, "dataset counts", "datasets count")
                note = f"clock ahead: {some} as of the receipt" if ahead else ""
                readings[sli, tier] = _Reading(age_s, counts if total else None, unknown, note, goal_s, ahead)
            elif not total:
                readings[sli, tier] = _Reading(unknown=_NO_DATA[sli])
            else:
                share = good / total if sli in _FLOORS else (total - good) / total
                readings[sli, tier] = _Reading(share, counts)
    return readings


_LACKING: Final = "accepted entries are not in the graph yet"
_NO_DATA: Final = {
    Sli.COVERAGE: "the inventory names no dataset of this tier",
    Sli.FRESHNESS: "no dataset of this tier has lineage",
    Sli.COMPLETENESS: "the index has no dataset of this tier",
    Sli.ACCURACY: "no edge to a dataset of this tier is expected",
    Sli.MISSING_PROVENANCE: "no job has read a dataset of this tier in the last 30 days",
}


def _of_entries(journal: Journal, plan: Plan, now_ms: int, since_ms: int) -> _Readings:
    """The lag and the errors of the last hour, counted since an instant."""
    hour_ms = now_ms - HOUR_MS
    lags_s, fresh_s = lags_since(journal, hour_ms, since_ms)
    lag = _Reading(unknown="no OpenLineage event has come within the last hour")
    if lags_s:
        objective_s = plan.file.objectives.of(Sli.INGESTION_LAG)
        good = bisect_right(fresh_s, objective_s or 0.0)
        counted = None if objective_s is None else (float(good), float(len(fresh_s)))
        lag = _Reading(lags_s[place_of(len(lags_s))], counted)
    last, fresh = failures_since(journal, hour_ms, since_ms)
    note = f"{last.retried:,} attempts of deliveries were repeated, which are no failures"
    note = note if last.retried else ""
    errors = _Reading(unknown="no entry has come or failed within the last hour", note=note)
    if last.entries or last.failed:
        total = max(fresh.entries, fresh.failed)
        value = last.failed / max(last.entries, last.failed)
        errors = _Reading(value, (float(total - fresh.failed), float(total)), note=note)
    return {(Sli.INGESTION_LAG, ""): lag, (Sli.ERROR_RATE, ""): errors}


def _of_collector(hour: Slot, bounds_s: Sequence[float]) -> _Readings:
    """The questions and the refused accesses of the last hour, as a collector has recorded them."""
    accesses = hour.counts.get(Sli.UNAUTHORISED_ACCESS.value)
    if accesses is None:
        unknown = "no collector has counted requests within the last hour; `waybill serve` does"
        slis = (*TIMED, Sli.UNAUTHORISED_ACCESS)
        return {(sli, ""): _Reading(unknown=unknown) for sli in slis}
    readings = {(Sli.UNAUTHORISED_ACCESS, ""): _Reading(accesses[1] - accesses[0], accesses)}
    for sli in TIMED:
        took = hour.latencies.get(sli.value, ())
        few = counted(sum(took), "question within the last hour is", "questions within the last hour are")
        unknown = f"{few} too few; {_COUNT_MIN} are enough"
        readings[sli, ""] = _Reading(
            unknown=unknown if any(took) else "nobody has asked within the last hour"
        )
        if sum(took) >= _COUNT_MIN:
            readings[sli, ""] = _Reading(quantile(took, bounds_s), hour.counts.get(sli.value))
    return readings


def quantile(buckets: Sequence[int], bounds_s: Sequence[float]) -> float:
    """The time that `SHARE` of some requests did not exceed, in seconds, as Prometheus estimates it."""
    wanted, below, lower_s = SHARE * sum(buckets), 0, 0.0
    for count, upper_s in zip(buckets, bounds_s, strict=False):
        if below + count >= wanted and count:
            return lower_s + (upper_s - lower_s) * (wanted - below) / count
        below, lower_s = below + count, upper_s
    return lower_s


def count_within(buckets: Sequence[int], bounds_s: Sequence[float], limit_s: float) -> float:
    """How many of some requests took at most this long, estimated within the bucket of the limit."""
    within, lower_s = 0.0, 0.0
    for count, upper_s in zip(buckets, bounds_s, strict=False):
        if limit_s < upper_s:
            return within + count * max(limit_s - lower_s, 0.0) / (upper_s - lower_s)
        within, lower_s = within + count, upper_s
    return within


def _slot_of(
    now_ms: int, readings: Mapping[tuple[Sli, str], _Reading], plan: Plan, served: Served | None
) -> Slot:
    counts = {_key(*key): one.counted for key, one in readings.items() if one.counted is not None}
    if served is None:
        return Slot(now_ms, counts)
    counts[Sli.UNAUTHORISED_ACCESS.value] = (float(served.requests - served.refused), float(served.requests))
    for sli in TIMED:
        if (objective_s := plan.file.objectives.of(sli)) is not None:
            took = served.latencies.get(sli.value, ())
            counts[sli.value] = (count_within(took, served.bounds_s, objective_s), float(sum(took)))
    return Slot(now_ms, counts, served.latencies)


def _key(sli: Sli, tier: str) -> str:
    return f"{sli}/{tier}" if tier else sli.value


def _in_order(readings: _Readings) -> list[tuple[tuple[Sli, str], _Reading]]:
    slis, tiers = list(Sli), ["", *TIERS]
    return sorted(readings.items(), key=lambda one: (slis.index(one[0][0]), tiers.index(one[0][1])))


def _level(
    of: tuple[Sli, str],
    reading: _Reading,
    objective: float | None,
    spans: Mapping[str, Slot],
    parts: Mapping[str, float],
) -> Level:
    """A level, with what is left of its budget, of whose 30 days only a part has been measured yet."""
    (sli, tier), rates, used = of, dict[str, float](), None
    key = _key(*of)
    for window, span in spans.items():
        counted, there = span.counts.get(key, (0.0, 0.0))
        allowed = _allowed(sli, objective, there, _SPANS_MS[window])
        if there >= (_COUNT_MIN if sli in TIMED else 1) and allowed is not None:
            rates[window] = burn_rate(there - counted, allowed)
            is_whole = not allowed or sli is Sli.UNAUTHORISED_ACCESS  # no share of what was counted
            used = rates[window] * (1.0 if is_whole else min(parts[key], 1.0))  # at last, that of the budget
    rates.pop(_BUDGET, None)
    good, total = reading.counted or (None, None)
    objective = objective if reading.objective is None else reading.objective
    return Level(
        sli=sli,
        tier=tier,
        value=reading.value,
        unit="seconds" if sli in _SECONDS else "count" if sli is Sli.UNAUTHORISED_ACCESS else "ratio",
        bound="at_least" if sli in _FLOORS else "at_most",
        objective=objective,
        is_met=_is_met(sli, objective, reading.value),
        good=good,
        total=total,
        budget_left=None if used is None else 1 - used,
        burn_rates=rates,
        unknown=reading.unknown,
        note=reading.note,
        clocks_ahead=reading.clocks_ahead,
    )


def _is_met(sli: Sli, objective: float | None, value: float | None) -> bool | None:
    if value is None or objective is None:
        return None
    return value >= objective if sli in _FLOORS else 0 <= value <= objective


def _allowed(sli: Sli, objective: float | None, total: float, length_ms: int) -> float | None:
    """How many may be bad of a number that was counted in a time; None: nothing is promised."""
    if sli is Sli.FRESHNESS:
        return total * (1 - SHARE)
    if objective is None:
        return None
    if sli is Sli.UNAUTHORISED_ACCESS:
        return objective * length_ms / HOUR_MS
    if sli in _SECONDS:
        return total * (1 - SHARE)
    return total * (1 - objective if sli in _FLOORS else objective)


_NONE: Final = Served("", 0, 0, (), {})
_LEVELS: Final = msgspec.json.Decoder(Levels)
_SERVED_DECODER: Final = msgspec.msgpack.Decoder(Served)
