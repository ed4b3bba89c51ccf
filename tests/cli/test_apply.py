"""Programs that share a home and disagree, and `waybill settings apply`."""

from __future__ import annotations

import contextlib
import functools
import json
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from events import RUN_EVENT, event
from waiting import wait_until

from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings, WaybillConfig, WaybillTransport, flush, locks
from waybill.transport.config import agreed
from waybill.transport.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Run

PROGRAM = """
import json, logging, pathlib, sys, time
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.uuid import generate_new_uuid
from waybill.transport import WaybillConfig, WaybillTransport

logging.basicConfig(format="%(levelname)s %(message)s")
given, stop = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
job = Job(given["system_name"], "load")
kept = 0
while True:
    transport = WaybillTransport(WaybillConfig.from_dict(given))
    client = OpenLineageClient(transport=transport)
    for _ in range(5):
        run = Run(str(generate_new_uuid()))
        done = {"eventType": RunState.COMPLETE, "eventTime": "2026-11-21T10:00:00Z", "producer": "https://p"}
        client.emit(RunEvent(run=run, job=job, **done))
        kept += 1
        print(kept, flush=True)
    transport.close()
    if stop.exists():
        break
    time.sleep(0.05)
"""


def start(given: dict[str, Any], stop: Path) -> subprocess.Popen[str]:
    """A program that opens the home and emits five events, again and again until `stop` is there."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(given, default=str), str(stop)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(program: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """How many events a program has kept, and what it warned of."""
    out, errors = program.communicate(timeout=180)
    assert program.returncode == 0, errors
    return int(out.split()[-1]), [
        line for line in errors.splitlines() if "to change the agreed settings" in line
    ]


wait_for = functools.partial(wait_until, timeout_s=120)


def filed(root: Path) -> dict[str, int]:
    """How many records each system has in a root; each of them is there once."""
    records = find(root)
    assert len({record.did for record in records}) == len(records)
    return dict(Counter(record.system_name for record in records))


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    """Ends the programs once it exists."""
    return tmp_path / "stop"


def test_two_programs_with_different_roots_both_keep_every_event_and_one_is_told_once_how_to_change_that(
    waybill: Run, home: Path, stop: Path, tmp_path: Path, end_runner: Callable[[Path], None]
) -> None:
    shared = {"home": home, "provenance_enabled": True}
    first = start({**shared, "system_name": "first", "root": tmp_path / "a"}, stop)
    wait_for(lambda: locks.holder(home) is not None)
    second = start({**shared, "system_name": "second", "root": tmp_path / "b"}, stop)
    wait_for(lambda: [one.system_name for one in Journal(home).read(0)].count("second") > 5)
    stop.touch()
    (kept_first, silent), (kept_second, warnings) = end(first), end(second)
    assert (kept_second > 5, silent) == (True, [])
    (warning,) = warnings
    assert f"root = '{tmp_path / 'b'}'" in warning
    assert f"agreed: '{tmp_path / 'a'}'" in warning
    report = flush(Settings.load({"home": home}, env={}, cwd=tmp_path))
    assert report.problems == {}
    assert filed(tmp_path / "a") == {"first": kept_first, "second": kept_second}
    assert not (tmp_path / "b").exists()

    command = shlex.split(warning.partition("to change the agreed settings: ")[2])
    assert waybill(*command[1:]).returncode == 0
    assert agreed(Journal(home))["root"] == str(tmp_path / "b")
    end_runner(home)


def test_what_is_applied_while_events_flow_reaches_the_living_runner_and_nothing_is_lost_or_filed_twice(
    called: Run, home: Path, stop: Path, tmp_path: Path, end_runner: Callable[[Path], None]
) -> None:
    root = tmp_path / "a"
    program = start({"home": home, "system_name": "s", "root": root, "provenance_enabled": False}, stop)
    wait_for(lambda: locks.holder(home) is not None)
    runner = locks.holder(home)
    wait_for(lambda: Journal(home).last_seq() > 20)
    assert not (root / "provenance").exists()

    plan = json.loads(
        called("settings", "apply", "--home", home, "--provenance-enabled", "--dry-run", "--json").stdout
    )
    assert agreed(Journal(home))["provenance_enabled"] is False
    applied = called("settings", "apply", "--home", home, "--provenance-enabled", "--json")
    assert (applied.returncode, json.loads(applied.stdout)) == (0, plan)
    assert plan["changes"] == [{"name": "provenance_enabled", "before": False, "after": True}]
    assert plan["runner"] == runner
    wait_for(lambda: any((root / "provenance").rglob("*.parquet")))
    assert locks.holder(home) == runner

    seen = Journal(home).last_seq()
    wait_for(lambda: Journal(home).last_seq() > seen + 20)
    stop.touch()
    kept, warnings = end(program)
    assert len(warnings) == 1
    assert flush(Settings.load({"home": home}, env={}, cwd=tmp_path)).problems == {}
    assert filed(root) == {"s": kept}
    end_runner(home)


def test_of_two_programs_that_redact_other_things_the_second_redacts_both(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facets = {name: {"query": "select 1"} for name in ("sql", "secret")}
    body = event("r", job={"namespace": "n", "name": "load", "facets": facets}, schemaURL=RUN_EVENT)
    given, lease = {"home": home, "runner": "none"}, None
    for name, redact in (("first", "job.facets.secret"), ("second", "job.facets.sql")):
        own = given | {"system_name": name, "redact": redact}
        with contextlib.closing(Home.open(Settings.load(own, env={}))) as opened:
            opened.emit(body)
        lease = lease or locks.take(home)  # as a runner does that the first has started
    assert lease is not None
    lease.release()
    found = {
        entry.system_name: json.loads(entry.body)["job"]["facets"]
        for entry in Journal(home).read(0)
        if entry.kind is Kind.OPENLINEAGE
    }
    assert (list(found["first"]), list(found["second"])) == (["sql"], [])
    (warning,) = [line for line in caplog.messages if "to change the agreed settings" in line]
    assert "--redact job.facets.secret,job.facets.sql" in warning
    assert agreed(Journal(home))["redact"] == ["job.facets.secret"]


def test_a_program_that_yields_hands_its_key_to_no_other_backend(home: Path, tmp_path: Path) -> None:
    theirs = {"home": home, "runner": "none", "marquez_url": "http://theirs:5000"}
    WaybillTransport(WaybillConfig.from_dict(theirs)).close()
    lease = locks.take(home)
    assert lease
    mine = {"home": home, "marquez_url": "http://mine:5000", "marquez_api_key": "s3cr3t"}
    opened = Home.open(Settings.load(mine, env={}, cwd=tmp_path))
    lease.release()
    assert opened.settings.marquez_url == "http://theirs:5000"
    assert "s3cr3t" not in str(opened.settings.environment)
    opened.close()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="environments are shown as Linux does")
def test_the_key_in_the_environment_of_a_program_that_yields_does_not_reach_the_runner_that_it_starts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end_runner: Callable[[Path], None]
) -> None:
    theirs = {"home": home, "runner": "none", "marquez_url": "http://127.0.0.1:9"}
    WaybillTransport(WaybillConfig.from_dict(theirs)).close()
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "s3cr3t")
    lease = locks.take(home)
    assert lease
    opened = Home.open(Settings.load({"home": home, "marquez_url": "http://127.0.0.1:8"}, cwd=tmp_path))
    lease.release()

    def is_started() -> bool:
        opened.ensure_runner()
        return locks.holder(home) is not None

    wait_for(is_started)
    environment = Path(f"/proc/{locks.holder(home)}/environ").read_bytes()
    assert b"s3cr3t" not in environment
    end_runner(home)
    opened.close()


def test_what_was_applied_stays_when_a_program_that_followed_the_home_flushes(
    called: Run, home: Path, tmp_path: Path
) -> None:
    given = {"home": home, "runner": "none", "journal_retain_days": 3}
    WaybillTransport(WaybillConfig.from_dict(given)).close()
    following = Home.open(Settings.load({"home": home, "runner": "none"}, env={}, cwd=tmp_path))
    assert called("settings", "apply", "--home", home, "--journal-retain-days", "9").returncode == 0
    flush(following.settings)
    assert agreed(following.journal)["journal_retain_days"] == 9
    following.close()


def test_a_command_says_that_the_living_runner_works_with_other_settings(
    called: Run,
    home: Path,
    tmp_path: Path,
    end_runner: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Home.open(Settings.load({"home": home, "journal_retain_days": 5}, env={}, cwd=tmp_path))
    refused = called("flush", "--home", home, "--journal-retain-days", "6")
    assert (refused.returncode, "uses 5.0" in refused.stderr) == (2, True), refused.stderr
    assert f"`waybill settings apply --home {home} --journal-retain-days 6" in refused.stderr
    monkeypatch.setenv("WAYBILL_JOURNAL_RETAIN_DAYS", "6")
    done = called("flush", "--home", home)
    assert done.returncode == 0, done.stderr
    assert "uses 5.0" in done.stderr
    end_runner(home)
    opened.close()
