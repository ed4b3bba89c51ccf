"""A Spark application as its event log has it, and the home that its listener told of it."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from sayings import AT, START_MS, ended, event_of, files, log_lines

from waybill.exporter.sources import EventsSource, JournalSource, Source
from waybill.facets import ProvenanceRecord, RunEvent, decode_event, fold
from waybill.spark.event_logs import CaughtUp, LoggedApplication, catch_up, find_logs
from waybill.transport import Journal, Kind, Settings
from waybill.transport.home import Home

if TYPE_CHECKING:
    from waybill.spark.tracking.executions import Execution

APPLICATION = "local-1790000000000"
ROOT = "01a1fec3-0000-7069-a2a1-b2454eb72dad"
RUN = "01a1fec3-0001-7069-a2a1-b2454eb72dad"
GOOD = "01a1fec3-0002-7069-a2a1-b2454eb72dad"

FAILED = ended(1, at=AT, jobs={3}, plan=files("/out/a"), error="boom\nat a line")
SUCCEEDED = ended(2, at=(AT[0], AT[1] + 1), jobs={4}, plan=files("/out/b"), error="")
LOST = ended(3, at=(AT[0] + 100, AT[1] + 100), plan=files("/out/c"), error="lost")
LINES = log_lines(APPLICATION, FAILED, SUCCEEDED, LOST)
LOG = "\n".join([*LINES, ""]).encode()

EVENTS = (
    event_of(ROOT, "START", START_MS - 1000, output=None, name="orders", application=APPLICATION),
    event_of(RUN, "COMPLETE", AT[1], name="orders.write", parent=ROOT),
    event_of(GOOD, "START", AT[0], output="/out/b", parent=ROOT, application=APPLICATION),
    event_of(GOOD, "COMPLETE", AT[1] + 1, output="/out/b", parent=ROOT),
)


class Store:
    """A home whose journal has the events of a listener without a session."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        given = {"home": self.home, "runner": "none", "system_name": "tests", "provenance_enabled": True}
        self.settings = Settings.load(given, origin="tests", env={}, cwd=folder)

    @classmethod
    def with_events(cls, folder: Path) -> Store:
        """One that the listener told of two writes, of which one failed, and not of the third."""
        made = cls(folder)
        made.emit(*EVENTS)
        return made

    def emit(self, *bodies: bytes) -> None:
        with closing(Home.open(self.settings)) as home:
            for body in bodies:
                home.emit(body)

    def all_records(self) -> list[ProvenanceRecord]:
        with closing(Journal(self.home)) as journal:
            entries = [entry for entry in journal.read(0, limit=1000) if entry.kind is Kind.OPENLINEAGE]
        events = [decode_event(entry.body) for entry in entries]
        return fold([event for event in events if isinstance(event, RunEvent)], system_name="tests")

    def records(self) -> dict[str, ProvenanceRecord]:
        """The records of the writes, by sink."""
        return {record.data_sink: record for record in self.all_records() if record.data_sink is not None}

    def log(self, *executions: Execution) -> Path:
        """The log of the application with these executions; without any, with those of `LINES`."""
        path = self.home.parent / APPLICATION
        path.write_text("\n".join([*(log_lines(APPLICATION, *executions) if executions else LINES), ""]))
        return path

    def correct(self, *executions: Execution) -> CaughtUp:
        """Correct what the log of the application tells, written as `log` does."""
        return self.catch_up(self.log(*executions))

    def catch_up(self, place: Path) -> CaughtUp:
        """Correct what the one log at a place tells."""
        (log,) = find_logs(place)
        sources: list[Source] = [JournalSource(self.home)]
        if (self.home / "events").exists():
            sources.append(EventsSource(self.home))
        (caught_up,) = catch_up([LoggedApplication.read(log)], sources)
        self.emit(*caught_up.events)
        return caught_up

    def command(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """`waybill spark catch-up`, in this process."""
        from waybill.cli import main  # programs that only follow a log need none

        words = ["waybill", "spark", "catch-up", *map(str, arguments), "--home", str(self.home)]
        with (
            redirect_stdout(io.StringIO()) as out,
            redirect_stderr(io.StringIO()) as err,
            pytest.MonkeyPatch.context() as patch,
            pytest.raises(SystemExit) as ended,
        ):
            patch.setattr(sys, "argv", [*words, "--runner", "none"])
            main()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), out.getvalue(), err.getvalue())
