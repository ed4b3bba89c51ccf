"""The collector's metrics as Prometheus reads them (text format 0.0.4), and how its workers share them."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.lineage.levels import Served, Sli
from waybill.marquez import counters_of, dead_letters
from waybill.transport.journal import Kind
from waybill.transport.runner import statuses

if TYPE_CHECKING:
    from waybill.exporter.health import Problem
    from waybill.lineage.levels import Breach, Level, Levels
    from waybill.transport import Journal

    from .event_logs import EventLogStatus

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: Final = {
    "requests": "Requests answered, by path, method and status.",
    "accepted": "Events and records that were acknowledged, by kind.",
    "accepted_bytes": "Acknowledged bytes, uncompressed, by kind.",
    "rejected": "Events and records that were refused, by kind.",
    "repeated": "Entries that the journal already had.",
    "refused_access": "Requests that were refused because a key or role was missing, by status.",
}
_FROM_THE_START: Final = {
    (name, ((label, value),)): 0
    for name, label, values in (
        ("rejected", "kind", [kind.name.lower() for kind in (Kind.OPENLINEAGE, Kind.PROVENANCE)]),
        ("refused_access", "status", ["401", "403"]),
    )
    for value in values
}
"""Prometheus sees no increase in a counter that begins with 1, so those that raise an alert begin with 0."""
_DELIVERIES: Final = {
    "delivered": "Events that a backend accepted, including repeats.",
    "failed": "Failed delivery attempts that are retried.",
    "refused": "Events that became dead letters.",
    "coalesced": "Events of files that summaries stand for.",
    "summaries": "Summaries that a backend accepted.",
}
_LATENCIES_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
    900.0,
)

_LEVELS: Final[Mapping[str, tuple[str, Callable[[Level], float | None]]]] = {
    "value": ("The value of a service level: a ratio, seconds or a count.", lambda one: one.value),
    "objective": ("The objective of a service level.", lambda one: one.objective),
    "met": (
        "1 if the objective is met, 0 if not.",
        lambda one: None if one.is_met is None else int(one.is_met),
    ),
    "error_budget_left": (
        "The part of the error budget of 30 days that is left.",
        lambda one: one.budget_left,
    ),
}

Labels = tuple[tuple[str, str], ...]


class Metrics(msgspec.Struct, array_like=True):
    """Counts; one event loop uses it, and any thread may read it."""

    counts: dict[tuple[str, Labels], int] = msgspec.field(default_factory=dict)
    latencies: dict[str, list[int]] = msgspec.field(default_factory=dict)
    seconds: dict[str, float] = msgspec.field(default_factory=dict)

    def count(self, name: str, by: int, **labels: str) -> None:
        """Add to a counter."""
        key = (name, tuple(labels.items()))
        self.counts[key] = self.counts.get(key, 0) + by

    def answered(self, path: str, method: str, status: int, took_s: float) -> None:
        """Count a request."""
        self.count("requests", 1, path=path, method=method, status=str(status))
        buckets = self.latencies.setdefault(path, [0] * (len(_LATENCIES_S) + 1))
        buckets[bisect_left(_LATENCIES_S, took_s)] += 1
        self.seconds[path] = self.seconds.get(path, 0.0) + took_s

    def add(self, other: Metrics) -> None:
        """Add what another process has counted."""
        for key, number in other.counts.items():
            self.counts[key] = self.counts.get(key, 0) + number
        for path, buckets in other.latencies.items():
            own = self.latencies.get(path) or [0] * len(buckets)
            self.latencies[path] = [sum(pair) for pair in zip(own, buckets, strict=True)]
        for path, seconds in other.seconds.items():
            self.seconds[path] = self.seconds.get(path, 0.0) + seconds

    def served(self, boot: str, questions: Mapping[str, Collection[str]]) -> Served:
        """What the levels need to know of the requests.

        Args:
            boot: one text for each start of the collector.
            questions: by level, the paths whose answers it is about.
        """
        counts = dict(self.counts).items()
        requests, refused = (
            sum(number for (counted, _), number in counts if counted == name)
            for name in ("requests", "refused_access")
        )
        by_path = dict(self.latencies)
        nothing = [0] * (len(_LATENCIES_S) + 1)
        latencies = {
            sli: tuple(
                map(sum, zip(nothing, *(by_path[path] for path in by_path.keys() & paths), strict=True))
            )
            for sli, paths in questions.items()
        }
        return Served(boot, requests, refused, _LATENCIES_S, latencies)

    def text(self) -> Iterator[str]:
        """The lines of the counters."""
        counts = sorted((_FROM_THE_START | self.counts).items())
        for name, text in _COUNTERS.items():
            yield from _head(f"{name}_total", "counter", text)
            for (counted, labels), number in counts:
                if counted == name:
                    yield _sample(f"{name}_total", labels, number)
        yield from _head("request_seconds", "histogram", "How long requests took, by path.")
        for path, buckets in sorted(dict(self.latencies).items()):
            total = 0
            for bound, number in zip((*map(str, _LATENCIES_S), "+Inf"), buckets, strict=True):
                total += number
                yield _sample("request_seconds_bucket", (("path", path), ("le", bound)), total)
            yield _sample("request_seconds_sum", (("path", path),), self.seconds[path])
            yield _sample("request_seconds_count", (("path", path),), total)


class Tallies:
    """The counters of all workers of one collector, each in its own file, so that any worker can add them up.

    A worker writes its file about once a second, so a worker that is killed loses the counts of its last
    second. Its replacement has the same number and continues from there.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._own = folder / f"{number}.tally"

    def resume(self, metrics: Metrics) -> None:
        """Continue from the counts of an earlier worker with this number."""
        with contextlib.suppress(FileNotFoundError):
            metrics.add(_DECODER.decode(self._own.read_bytes()))

    def publish(self, metrics: Metrics) -> None:
        """Publish this worker's counts to the others."""
        fresh = self._own.with_suffix(".new")
        fresh.write_bytes(msgspec.msgpack.encode(metrics))
        fresh.replace(self._own)

    def total(self, metrics: Metrics) -> Metrics:
        """The counts of all workers; those of this worker are current."""
        total = _DECODER.decode(msgspec.msgpack.encode(metrics))
        for path in self._folder.glob("*.tally"):
            if path != self._own:
                total.add(_DECODER.decode(path.read_bytes()))
        return total


def total_of(metrics: Metrics, tallies: Tallies | None) -> Metrics:
    """The counts of all workers, or of the only process."""
    return metrics if tallies is None else tallies.total(metrics)


def home_text(journal: Journal) -> Iterator[str]:
    """The lines of the home's metrics, from its journal."""
    last_seq, cursors, found = journal.last_seq(), journal.cursors(), statuses(journal)
    names = sorted(found)
    yield from _gauge("journal_last_seq", "The newest entry of the journal.", {(): last_seq})
    yield from _gauge("journal_bytes", "The size of the journal's content.", {(): journal.size_bytes()})
    text = "The size at which the journal refuses new entries."
    yield from _gauge("journal_max_bytes", text, {(): journal.max_bytes})
    waiting = {_projection(name): journal.waiting(cursors.get(name, 0)) for name in names}
    behind = {labels: one.entries for labels, one in waiting.items()}
    yield from _gauge("projection_behind", "Entries that the projection has not processed.", behind)
    ages_s = {labels: one.lag_s for labels, one in waiting.items()}
    text = "Age of the oldest entry that the projection has not processed."
    yield from _gauge("projection_age_seconds", text, ages_s)
    text = "How often a projection had nothing to do and asked again at once, since its runner started."
    yield from _head("projection_empty_turns_total", "counter", text)
    for name in names:
        yield _sample("projection_empty_turns_total", _projection(name), found[name].empty_turns)
    poison = {
        _projection(name): count
        for name, count in (dict.fromkeys(names, 0) | journal.poison.counts()).items()
    }
    yield from _gauge("poison_entries", "Entries set aside because the projection cannot apply them.", poison)
    counters = {name: counters for name in names if (counters := counters_of(journal, name)) is not None}
    for what, text in _DELIVERIES.items():
        yield from _head(f"delivery_{what}_total", "counter", text)
        for name, counted in counters.items():
            yield _sample(f"delivery_{what}_total", _projection(name), getattr(counted, what))
    letters = {_projection(name): len(dead_letters(journal, name)) for name in counters}
    yield from _gauge("dead_letters", "Events that a backend refused permanently.", letters)


def problems_text(problems: Sequence[Problem]) -> Iterator[str]:
    """One line for each problem of the home; `waybill status` shows the details."""
    found: dict[Labels, float] = {(("kind", one.kind.value), ("name", one.name)): 1 for one in problems}
    yield from _gauge("problem", "1 for each problem of the home.", found)


def event_logs_text(status: EventLogStatus) -> Iterator[str]:
    """The lines of the results of following Spark's event logs."""
    yield from _head(
        "event_logs_corrected_total",
        "counter",
        "Failures that the event logs showed and the listener did not report.",
    )
    yield _sample("event_logs_corrected_total", (), status.corrected)
    yield from _head("event_logs_confirmed_total", "counter", "Writes that the event logs confirmed.")
    yield _sample("event_logs_confirmed_total", (), status.confirmed)
    text = "Event logs, and their locations, that cannot be read."
    yield from _gauge("event_logs_problems", text, {(): len(status.problems)})


def levels_text(found: Levels) -> Iterator[str]:
    """The lines of the service levels; what is unknown, or not promised, has none."""

    def labels_of(one: Level | Breach, *more: tuple[str, str]) -> Labels:
        return (("sli", one.sli.value), ("tier", one.tier), *more)

    for name, (text, value_of) in _LEVELS.items():
        told = {labels_of(one): value_of(one) for one in found.levels}
        known = {labels: value for labels, value in told.items() if value is not None}
        yield from _gauge(f"sli_{name}", text, known)
    rates = {
        labels_of(one, ("window", window)): rate
        for one in found.levels
        for window, rate in one.burn_rates.items()
    }
    yield from _gauge("sli_burn_rate", "How many times as fast as allowed the error budget is used.", rates)
    breaches = {
        labels_of(one, ("owner", one.owner), ("namespace", one.namespace), ("dataset", one.dataset)): 1
        for one in found.breaches
    }
    yield from _gauge("sli_breach", "1 for each dataset that misses an objective, at most 100.", breaches)
    text = "How many more datasets miss an objective."
    yield from _gauge("sli_breaches_left_out", text, {(): found.breaches_left_out})
    named = [(one.sli, one.namespace, one.dataset) for one in found.breaches]
    silent = [one for one in named if found.is_held(*one)]
    every = {sli for window in found.maintenance if window.is_about_all for sli in window.slis or Sli}
    held: dict[Labels, float] = {
        (("sli", sli.value), ("namespace", namespace), ("dataset", dataset)): 1
        for sli, namespace, dataset in (*silent, *((sli, "", "") for sli in sorted(every)))
    }
    text = (
        "1 for each dataset in breach, and with empty names each level, that a maintenance window is about."
    )
    yield from _gauge("maintenance", text, held)


def _projection(name: str) -> Labels:
    return (("projection", name),)


def _gauge(name: str, text: str, values: Mapping[Labels, float]) -> Iterator[str]:
    yield from _head(name, "gauge", text)
    for labels, value in values.items():
        yield _sample(name, labels, value)


def _head(name: str, kind: str, text: str) -> Iterator[str]:
    yield f"# HELP waybill_{name} {text}"
    yield f"# TYPE waybill_{name} {kind}"


def _sample(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels)
    return f"waybill_{name}{{{inside}}} {value}" if inside else f"waybill_{name} {value}"


_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_DECODER: Final = msgspec.msgpack.Decoder(Metrics)
