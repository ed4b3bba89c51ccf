"""The collector's figures as Prometheus reads them (text format 0.0.4), and how its workers share them."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.marquez import counters_of, dead_letters
from waybill.transport.runner import lag_s, statuses

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.collector.event_logs import EventLogStatus
    from waybill.transport import Journal

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

_COUNTERS: Final = {
    "requests": "Requests answered, by path, method and status.",
    "accepted": "Events and records that were acknowledged, by kind.",
    "accepted_bytes": "Bytes of what was acknowledged, uncompressed, by kind.",
    "rejected": "Events and records that were refused, by kind.",
    "repeated": "Entries that the journal had already.",
    "refused_access": "Requests that were refused for want of a key or role, by status.",
}
_DELIVERIES: Final = {
    "delivered": "Events that a backend took, repeats included.",
    "failed": "Attempts to deliver that are repeated.",
    "refused": "Events that became dead letters.",
    "coalesced": "Events of files that summaries stand for.",
    "summaries": "Summaries that a backend took.",
}
_LATENCIES_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

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

    def text(self) -> Iterator[str]:
        """The lines of what was counted."""
        counts = sorted(dict(self.counts).items())
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
    """The figures of all workers of one collector, each in a file of its own, so that any can add them up.

    A worker writes its file about once a second, so one that is killed loses what it counted in its last
    second; its replacement, which has the same number, goes on from there.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._own = folder / f"{number}.tally"

    def resume(self, metrics: Metrics) -> None:
        """Go on from what an earlier worker of this number has counted."""
        with contextlib.suppress(FileNotFoundError):
            metrics.add(_DECODER.decode(self._own.read_bytes()))

    def publish(self, metrics: Metrics) -> None:
        """Let the others know what was counted here."""
        fresh = self._own.with_suffix(".new")
        fresh.write_bytes(msgspec.msgpack.encode(metrics))
        fresh.replace(self._own)

    def total(self, metrics: Metrics) -> Metrics:
        """What all workers have counted, this one up to now."""
        total = _DECODER.decode(msgspec.msgpack.encode(metrics))
        for path in self._folder.glob("*.tally"):
            if path != self._own:
                total.add(_DECODER.decode(path.read_bytes()))
        return total


def home_text(journal: Journal) -> Iterator[str]:
    """The lines of the home's figures, from its journal."""
    last_seq, cursors, found = journal.last_seq(), journal.cursors(), statuses(journal)
    names = sorted(found)
    yield from _gauge("journal_last_seq", "The newest entry of the journal.", {(): last_seq})
    yield from _gauge("journal_bytes", "The size of the journal's content.", {(): journal.size_bytes()})
    text = "The size from which on nothing is taken."
    yield from _gauge("journal_max_bytes", text, {(): journal.max_bytes})
    behind = {_projection(name): max(last_seq - cursors.get(name, 0), 0) for name in names}
    yield from _gauge("projection_behind", "Entries not dealt with.", behind)
    ages_s = {_projection(name): lag_s(journal, cursors.get(name, 0)) for name in names}
    yield from _gauge("projection_age_seconds", "Age of the oldest entry not dealt with.", ages_s)
    problems = {_projection(name): int(found[name].problem is not None) for name in names}
    yield from _gauge("projection_problem", "1 where something holds it up.", problems)
    wrong = {
        (*_projection(name), ("setting", setting)): 1
        for name in names
        if (setting := found[name].to_correct) is not None
    }
    yield from _gauge("projection_to_correct", "1 for each setting that somebody has to correct.", wrong)
    poison = {
        _projection(name): count
        for name, count in (dict.fromkeys(names, 0) | journal.poison.counts()).items()
    }
    yield from _gauge("poison_entries", "Entries set aside because it cannot apply them.", poison)
    counters = {name: counters for name in names if (counters := counters_of(journal, name)) is not None}
    for what, text in _DELIVERIES.items():
        yield from _head(f"delivery_{what}_total", "counter", text)
        for name, counted in counters.items():
            yield _sample(f"delivery_{what}_total", _projection(name), getattr(counted, what))
    letters = {_projection(name): len(dead_letters(journal, name)) for name in counters}
    yield from _gauge("dead_letters", "Events that a backend refused for good.", letters)


def event_logs_text(status: EventLogStatus) -> Iterator[str]:
    """The lines of what following Spark's event logs has given."""
    yield from _head("event_logs_corrected_total", "counter", "Failures told that the listener did not tell.")
    yield _sample("event_logs_corrected_total", (), status.corrected)
    yield from _head("event_logs_confirmed_total", "counter", "Writes told to have succeeded.")
    yield _sample("event_logs_confirmed_total", (), status.confirmed)
    text = "Event logs, and places of them, that cannot be read."
    yield from _gauge("event_logs_problems", text, {(): len(status.problems)})


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
