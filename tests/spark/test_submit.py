"""`waybill spark submit` is spark-submit, and tells afterwards what the listener did not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from calling import call
from logged import APPLICATION, ROOT, RUN, Store
from sayings import AT, START_MS, ended, event_of, files, log_lines
from stage import QUICK_JVM

from waybill.facets import FinalState, ProvenanceRecord

if TYPE_CHECKING:
    from conftest import Run

SUBMIT = (sys.executable, "-m", "waybill.cli", "spark", "submit")

FAKE = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys
pathlib.Path(os.environ["SAID"]).write_text(json.dumps(sys.argv[1:]))
folder = [arg.partition("=file://")[2] for arg in sys.argv if arg.startswith("spark.eventLog.dir=file://")]
if folder and "LOG" in os.environ:
    pathlib.Path(folder[-1], "log").write_text(os.environ["LOG"])
if "WAITS" in os.environ:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
    print("waiting", flush=True)
    signal.pause()
sys.exit(int(os.environ.get("STATUS", "0")))
"""


class Fake:
    """A Spark whose spark-submit is a script that notes its arguments and writes a log."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.store, self.said, self._patch = Store(folder), folder / "said", patch
        program = folder / "spark" / "bin" / "spark-submit"
        program.parent.mkdir(parents=True)
        program.write_text(FAKE)
        program.chmod(0o755)
        own = {"SPARK_HOME": folder / "spark", "SAID": self.said, "WAYBILL_HOME": self.store.home}
        for name, value in {**own, "WAYBILL_RUNNER": "none"}.items():
            patch.setenv(name, str(value))

    def submit(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        for name, value in env.items():
            self._patch.setenv(name, value)
        return call("spark", "submit", *arguments)

    def arguments(self) -> list[str]:
        """What spark-submit was given, without the options for our log."""
        said: list[str] = json.loads(self.said.read_text())
        return said[4:] if "spark.eventLog.enabled=true" in said[:2] else said

    def records(self) -> Mapping[str, ProvenanceRecord]:
        return {record.did: record for record in self.store.all_records()}

    def logs(self) -> list[Path]:
        return list((self.store.home / "spark-event-logs").rglob("log"))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(tmp_path, monkeypatch)


@pytest.fixture
def heard(fake: Fake) -> Fake:
    """The home has the events of the listener's."""
    fake.store.emit(
        event_of(ROOT, "START", START_MS - 1000, output=None, application=APPLICATION),
        event_of(RUN, "COMPLETE", AT[1], parent=ROOT),
        event_of(ROOT, "COMPLETE", AT[1] + 100, output=None),
    )
    return fake


FAILED = "\n".join(log_lines(APPLICATION, ended(1, at=AT, plan=files("/out/a"))))


def test_arguments_and_exit_code_are_passed_on(fake: Fake) -> None:
    arguments = ["--master", "local[2]", "--verbose", "job.py", "--help", "--home", "x", "a b"]
    done = fake.submit(*arguments, STATUS="7")
    assert done.returncode == 7, done.stderr
    assert fake.arguments() == arguments
    assert "Spark wrote no event log here" in done.stderr


@pytest.mark.parametrize(
    ("status", "state", "told"),
    [
        (1, FinalState.ERROR, {"errorCause": "the program exited with status 1"}),
        (0, FinalState.COMPLETE, None),
    ],
)
def test_what_failed_is_told_afterwards_and_the_log_goes(
    heard: Fake, status: int, state: FinalState, told: dict[str, str] | None
) -> None:
    assert heard.submit("job.py", LOG=FAILED, STATUS=str(status)).returncode == status
    records = heard.records()
    assert records[RUN].final_state is FinalState.ERROR
    assert (records[ROOT].final_state, records[ROOT].annotations) == (state, told)
    assert heard.logs() == []


def test_a_log_that_could_not_be_caught_up_from_is_kept_and_named(fake: Fake) -> None:
    done = fake.submit("job.py", LOG=FAILED, STATUS="3")
    assert done.returncode == 3
    (log,) = fake.logs()
    assert f"waybill spark catch-up {log.parent}" in " ".join(done.stderr.split())
    assert log.parent.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "option",
    [["--conf", "spark.eventLog.enabled=true"], ["-c", "spark.eventLog.enabled=true"]],
)
def test_a_log_that_the_user_has_set_up_stays_where_it_is(fake: Fake, option: list[str]) -> None:
    fake.submit(*option, "job.py")
    assert json.loads(fake.said.read_text()) == [*option, "job.py"]


def test_a_signal_ends_spark_submit_first(fake: Fake) -> None:
    env = {**os.environ, "WAITS": str(fake.said)}
    with subprocess.Popen([*SUBMIT, "job.py"], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 42


TRACKED = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.appName("submitted").config(map=LOCAL["conf"]).master(LOCAL["master"])
spark = waybill.spark.configure(builder, tags={"team": "night"}, **SETTINGS).getOrCreate()
assert SparkSession.builder.getOrCreate() is spark
spark.sparkContext.setLogLevel("OFF")

def attempt(write):
    try:
        write()
    except Exception:
        pass

attempt(lambda: spark.range(5).write.parquet(OUT + "/good"))
attempt(lambda: spark.range(5).write.json(OUT + "/good"))
sys.exit(4)
"""


@pytest.mark.spark_truth
def test_a_tracked_program_that_spark_submit_starts_tells_all_itself(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    env = {"WAYBILL_HOME": str(home), "WAYBILL_RUNNER": "none"}
    submitted = run(TRACKED, command=(*SUBMIT, "--driver-java-options", QUICK_JVM), env=env, home=home)
    assert submitted.status == 4, submitted.stderr
    states = {record.final_state for record in submitted.written("good")}
    assert states == {FinalState.COMPLETE, FinalState.ERROR}
    application = submitted.application("submitted")
    assert application.final_state is FinalState.ERROR
    assert application.annotations == {"errorCause": "the program exited with status 4", "team": "night"}
    assert "failed, 0 corrected" in submitted.stderr
    assert list((home / "spark-event-logs").iterdir()) == []
