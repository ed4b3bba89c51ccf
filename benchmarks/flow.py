"""A busy flow and a slow backend, on a simulated clock: the graph's lag and the backend's events.

Part of `benchmarks.delivery`. Each file has one event, which is its whole record. One run per second belongs
to no file.
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waybill.marquez.backend import Correction
from waybill.transport.clock import Clock as RealClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.marquez.backend import Answer
    from waybill.transport import Journal, Settings

FILES_PER_S: Final = 5_000
TAKEN_PER_S: Final = 40
START_S: Final = 1_800_000_000.0
HOUSEKEEPING_EVERY_S: Final = 10.0


class Clock(RealClock):
    """The simulated time of day, which replaces the real one."""

    def __init__(self) -> None:
        self.now_s = START_S
        time.time_ns = self.time_ns

    def time_ns(self) -> int:
        """The simulated time, as `time.time_ns` gives it."""
        return int(self.now_s * 1e9)

    def monotonic_s(self) -> float:
        """The simulated time in seconds."""
        return self.now_s


class SlowBackend:
    """Takes `TAKEN_PER_S` events a second."""

    shown_url = "a slow backend"
    to_correct = (Correction(""), Correction(""))

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.files = self.summaries = self.others = self.summarised = 0

    def deliver(self, body: bytes) -> Answer:
        """Accept one event, and advance the clock by the time that this takes."""
        from waybill.marquez.backend import Answer, Verdict

        self._clock.now_s += 1 / TAKEN_PER_S
        event = json.loads(body)
        facets = event.get("run", {}).get("facets", {})
        if (summary := facets.get("waybill_summary")) is not None:
            # Runs of transforms count the same files again, and a START what the end of its run counts.
            if "transform" not in summary and event["eventType"] != "START":
                self.summaries += 1
                self.summarised += summary["records"]
        elif "waybill_deltaFile" in facets:
            self.files += 1
        else:
            self.others += "run" in event
        return Answer(verdict=Verdict.DELIVERED, status=201)

    def renewed(self) -> bool:
        """Whether there is a new key: never, since this backend needs none."""
        return False

    def close(self) -> None:
        """Do nothing, since nothing is open."""


class Flow:
    """Appends to the journal the events that have come in by the clock's time."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self.files = 0
        self.others = 0

    def append(self, until_s: float) -> None:
        """Append the events since the last call, but none after `until_s`."""
        from waybill.transport import Kind

        elapsed_s = min(self._clock.now_s, until_s) - START_S
        bodies = list(self._files(int(elapsed_s * FILES_PER_S)))
        while self.others < int(elapsed_s):
            bodies += (
                _event(f"job-{self.others}", kind, self._now(), None) for kind in ("START", "COMPLETE")
            )
            self.others += 1
        if bodies:
            self._journal.append_many([(Kind.OPENLINEAGE, body, "") for body in bodies])

    def _files(self, upto: int) -> Iterator[bytes]:
        now = self._now()
        while self.files < upto:
            did = f"file-{self.files:09}"
            ended = f'"filename":"{did}.csv","transforms":["load"],"dataSink":"lake","finalState":"COMPLETE"'
            yield _event(did, "COMPLETE", now, f'"did":"{did}","dataSource":"orders",{ended}')
            self.files += 1

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_s, UTC).isoformat()


class Run:
    """A runner's work on a flow, until nothing comes in and nothing waits.

    Args:
        settings: the settings of an empty home.
        minutes: how long files come in, in simulated minutes.
    """

    def __init__(self, settings: Settings, minutes: float) -> None:
        from waybill.exporter import open_layout
        from waybill.marquez import Delivery
        from waybill.marquez.summaries import SummaryRules
        from waybill.transport import Journal

        self._clock = clock = Clock()
        self.backend = SlowBackend(clock)
        self._journal = Journal(settings.home, clock=clock)
        self.flow = Flow(self._journal, clock)
        self._delivery = Delivery(
            self._journal,
            self.backend,
            connections=1,
            draws=True,
            summaries=SummaryRules(detail="auto"),
        )
        layout = open_layout(self._journal, settings)
        assert layout is not None
        self._layout = layout
        self._ends_s, self._pruned_s = START_S + minutes * 60, START_S
        self.lag_s = 0.0
        self.delivery_s = 0.0
        """CPU time of the delivery."""
        self.layout_s = 0.0
        """CPU time of the layout."""

    def work(self) -> None:
        """Work until the end of the flow and of its backlog."""
        clock = self._clock
        while clock.now_s < self._ends_s or self._delivery.pending():
            self.flow.append(self._ends_s)
            before_s = time.process_time()
            step = self._delivery.step()
            took_s = time.process_time() - before_s
            self.delivery_s += took_s
            clock.now_s += took_s
            if not step.applied:
                clock.now_s += step.retry_s if step.retry_s is not None else 1 / TAKEN_PER_S
            for entry in self._journal.read(self._journal.cursor("marquez"), limit=1):
                self.lag_s = max(self.lag_s, clock.now_s - entry.received_ms / 1000)
            if clock.now_s - self._pruned_s > HOUSEKEEPING_EVERY_S:
                self._pruned_s = clock.now_s
                self._file_and_prune()
        self._delivery.finish()
        self._delivery.close()
        self._layout.close()
        self._journal.close()

    def _file_and_prune(self) -> None:
        """Do the rest of a runner's work."""
        before_s = time.process_time()
        while self._layout.step().applied:
            pass
        self.layout_s += time.process_time() - before_s
        while self._journal.prune(
            min(self._journal.cursor("marquez"), self._journal.cursor("layout")), 2**60
        ):
            pass
        self._journal.checkpoint()


def measure(minutes: float, lag_max_s: float) -> None:
    """Simulate a number of minutes and print the results."""
    from waybill.transport import Settings, flush

    started_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        given = {"home": folder, "provenance_enabled": True, "archive_enabled": False}
        settings = Settings.load(given, env={})
        run = Run(settings, minutes)
        run.work()
        flush(settings)
        records = _records_in(Path(folder)) - run.flow.others
    flow, backend = run.flow, run.backend
    print(
        f"{minutes:g} simulated minutes in {(time.perf_counter() - started_s) / 60:.1f} real ones\n"
        f"CPU time for each file: {run.delivery_s / flow.files * 1e6:.0f} µs in the delivery, "
        f"{run.layout_s / flow.files * 1e6:.0f} µs in the layout; a core has {1e6 / FILES_PER_S:.0f} µs\n"
        f"{flow.files:,} files: {backend.files:,} in runs of their own, {backend.summarised:,} in "
        f"{backend.summaries:,} summaries; {records:,} records in Parquet (goal: {flow.files:,})\n"
        f"{backend.others:,} events of {flow.others:,} other runs\n"
        f"lag of the graph: at most {run.lag_s:.0f} s (goal: under {lag_max_s:.0f} s)"
    )


def _records_in(root: Path) -> int:
    import pyarrow.parquet

    files = (root / "provenance" / "compacted").rglob("*.parquet")
    return sum(pyarrow.parquet.read_metadata(path).num_rows for path in files)


def _event(run_id: str, kind: str, moment: str, facet: str | None) -> bytes:
    facets = "" if facet is None else f'"waybill_deltaFile":{{{facet}}}'
    output = ',"outputs":[{"namespace":"bench","name":"lake"}]' if kind == "COMPLETE" else ""
    return (
        f'{{"eventType":"{kind}","eventTime":"{moment}","run":{{"runId":"{run_id}","facets":{{{facets}}}}},'
        f'"job":{{"namespace":"bench","name":"orders"}},"inputs":[{{"namespace":"bench","name":"orders"}}]{output},'
        '"producer":"https://example.com/bench",'
        '"schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"}'
    ).encode()
