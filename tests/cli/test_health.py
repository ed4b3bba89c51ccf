"""What is wrong with a home is told alike by `status`, `doctor`, ``/health/ready`` and the metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from letters import letter, row_of

from waybill.cli.commands.doctor import home_is_well, marquez_answers, root_is_right, runs_end
from waybill.cli.commands.status import status_of
from waybill.cli.findings import Level
from waybill.collector.endpoints import HealthEndpoints, Readings, health
from waybill.collector.event_logs import STATE, STATUS, EventLogStatus
from waybill.collector.metrics import Metrics
from waybill.exporter.health import LAG_MAX_S, ProblemKind, problems_of_projections
from waybill.exporter.names import COMPACTED, DAMAGED, Hour
from waybill.exporter.quarantine import Quarantined
from waybill.transport import Journal, Kind, Settings, flush, locks
from waybill.transport.config import agree
from waybill.transport.fallback import fallback_of

if TYPE_CHECKING:
    from conftest import Run

    from waybill.collector.http import Request

Spoil = Callable[[Journal, Settings, pytest.MonkeyPatch], None]

RECORD = {"did": "d", "systemName": "edge", "finalState": "COMPLETE", "created": 1, "completed": 2}


def report(problem: dict[str, str]) -> Spoil:
    """As the runner reports what holds up a projection."""

    def spoil(journal: Journal, *_: object) -> None:
        journal.commit("runner", put={"marquez": msgspec.json.encode(problem)})

    return spoil


def fill_disk(_: Journal, __: Settings, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))


def fill_journal(journal: Journal, settings: Settings, _: pytest.MonkeyPatch) -> None:
    keep_mib(journal, 1.1)
    agree(journal, settings.with_values({"journal_max_bytes": "1MiB"}, "tests"))


def nearly_fill_journal(journal: Journal, settings: Settings, _: pytest.MonkeyPatch) -> None:
    keep_mib(journal, 0.85)
    agree(journal, settings.with_values({"journal_max_bytes": "1MiB"}, "tests"))


def keep_mib(journal: Journal, size_mib: float) -> None:
    size_bytes = int(size_mib * 2**20) - journal.size_bytes()
    journal.append(Kind.OPENLINEAGE, secrets.token_bytes(size_bytes))


def lose_root(journal: Journal, settings: Settings, _: pytest.MonkeyPatch) -> None:
    journal.append(Kind.PROVENANCE, json.dumps([RECORD]).encode())
    assert flush(settings).problems == {}
    settings.root.rename(settings.root.with_name("away"))


def lag(journal: Journal, _: Settings, patch: pytest.MonkeyPatch) -> None:
    report({})(journal, _, patch)
    journal.append(Kind.PROVENANCE, json.dumps([RECORD]).encode())
    later_ns = time.time_ns() + int(LAG_MAX_S + 60) * 10**9
    patch.setattr(time, "time_ns", lambda: later_ns)


def lag_behind_live_runner(journal: Journal, settings: Settings, patch: pytest.MonkeyPatch) -> None:
    lag(journal, settings, patch)
    held = locks.take(journal.home)
    assert held is not None
    patch.setattr(lag_behind_live_runner, "held", held, raising=False)


def poison(journal: Journal, *_: object) -> None:
    journal.poison.set_aside("layout", journal.append(Kind.PROVENANCE, b'[{"did": 1}]'), "no system")


def quarantine(_: Journal, settings: Settings, __: pytest.MonkeyPatch) -> None:
    folder = settings.root / DAMAGED
    folder.mkdir(parents=True)
    hour = Hour("20260101", "00")
    one = Quarantined(path="a", kept="b", hour=hour, reason="", at_ms=1, sha256="", size_bytes=1, restore="")
    (folder / "x.damaged").touch()
    (folder / "x.json").write_bytes(msgspec.json.encode(one))


def lose_compacted(journal: Journal, settings: Settings, _: pytest.MonkeyPatch) -> None:
    journal.append(Kind.PROVENANCE, json.dumps([RECORD]).encode())
    assert flush(settings).problems == {}
    (file,) = (settings.root / COMPACTED).rglob("*.parquet")
    file.unlink()
    assert flush(settings).problems == {}


def refuse(journal: Journal, *_: object) -> None:
    journal.commit("marquez", cursor=0, put=row_of(letter()))


def leave_in_fallback(_: Journal, settings: Settings, __: pytest.MonkeyPatch) -> None:
    folder = fallback_of(settings)
    assert folder is not None
    folder.mkdir(0o755, parents=True)  # which others could have written to


def lose_event_log(journal: Journal, *_: object) -> None:
    found = EventLogStatus(problems={"/logs": "/logs cannot be read; check its permissions"})
    journal.commit(STATE, put={STATUS: msgspec.msgpack.encode(found)})


TROUBLES: list[tuple[ProblemKind, Spoil]] = [
    (ProblemKind.DISK, fill_disk),
    (ProblemKind.JOURNAL, fill_journal),
    (ProblemKind.JOURNAL, nearly_fill_journal),
    (ProblemKind.ROOT, lose_root),
    (ProblemKind.PROJECTION, report({"problem": "nobody answers; start it"})),
    (ProblemKind.SETTING, report({"problem": "refused; correct it", "to_correct": "marquez_api_key"})),
    (ProblemKind.LAG, lag),
    (ProblemKind.LAG, lag_behind_live_runner),
    (ProblemKind.POISON, poison),
    (ProblemKind.QUARANTINE, quarantine),
    (ProblemKind.DIFFERING, lose_compacted),
    (ProblemKind.DEAD_LETTERS, refuse),
    (ProblemKind.FALLBACK, leave_in_fallback),
    (ProblemKind.EVENT_LOGS, lose_event_log),
]
STOPPING = {fill_disk, fill_journal}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings of a home that follows event logs, as the environment says, too."""
    fallback, logs = tmp_path / "fallback", tmp_path / "logs"
    monkeypatch.setenv("WAYBILL_FALLBACK_HOME", str(fallback))
    monkeypatch.setenv("WAYBILL_EVENT_LOGS", str(logs))
    return settings.with_values({"fallback_home": fallback, "event_logs": [str(logs)]}, "tests")


def asked(endpoints: HealthEndpoints, request: Request) -> tuple[dict[str, Any], list[str]]:
    """What readiness and metrics say."""

    async def ask() -> tuple[bytes, bytes]:
        return bytes((await endpoints.ready(request)).body), bytes((await endpoints.metrics(request)).body)

    ready, metrics = asyncio.run(ask())
    return json.loads(ready), metrics.decode().splitlines()


@pytest.mark.parametrize(("kind", "spoil"), TROUBLES, ids=[spoil.__name__ for _, spoil in TROUBLES])
def test_each_problem_is_told_alike_wherever_somebody_looks(
    called: Run,
    settings: Settings,
    journal: Journal,
    monkeypatch: pytest.MonkeyPatch,
    kind: ProblemKind,
    spoil: Spoil,
) -> None:
    agreed = agree(journal, settings)
    endpoints = HealthEndpoints(journal, agreed, Readings(journal, agreed), Metrics(), None, follows=True)
    request: Any = None
    ready, metrics = asked(endpoints, request)
    assert (ready, [line for line in metrics if "waybill_problem{" in line]) == (
        {"ready": True, "problems": {}},
        [],
    )
    assert called("status", "--home", settings.home).returncode == 0
    spoil(journal, settings, monkeypatch)
    agree(journal, settings.with_values({}, "tests"))
    shown = called("status", "--home", settings.home, "--json")
    assert shown.returncode == 1, shown.stderr
    (problem,) = json.loads(shown.stdout)["problems"]
    sentence = f"{problem['says']}; {problem['fix']}"
    assert (problem["kind"], problem["stops_intake"]) == (kind, spoil in STOPPING)
    assert sentence in called("status", "--home", settings.home).stdout
    checks = (home_is_well, root_is_right, marquez_answers)
    checked = [check(Settings.load({"home": settings.home})) for check in checks]
    assert [one.says for one in checked if one.level is Level.BROKEN] == [problem["says"]]
    ready, metrics = asked(endpoints, request)
    assert (ready["ready"], list(ready["problems"].values())) == (spoil not in STOPPING, [sentence])
    assert f'waybill_problem{{kind="{kind}",name="{problem["name"]}"}} 1' in metrics


def test_entries_that_wait_while_nobody_works_are_one_problem_with_one_way_out(settings: Settings) -> None:
    with contextlib.closing(Journal(settings.home)) as journal:
        for name in ("layout", "marquez"):
            journal.commit("runner", put={name: b"{}"})
        journal.append(Kind.PROVENANCE, json.dumps([RECORD]).encode())
        with pytest.MonkeyPatch.context() as patch:
            later_ns = time.time_ns() + int(LAG_MAX_S + 60) * 10**9
            patch.setattr(time, "time_ns", lambda: later_ns)
            (problem,) = problems_of_projections(journal)
            says = "no runner is alive, and entries have waited for layout, marquez for 11 minutes"
            assert problem.says == says
            assert problem.fix == f"`waybill flush --home {settings.home}`"
            report({"problem": "nobody answers; start it"})(journal, settings, patch)
            told = {one.name: one.kind for one in problems_of_projections(journal)}
            assert told == {"marquez": ProblemKind.PROJECTION, "runner": ProblemKind.LAG}


def test_there_is_a_row_for_each_kind_of_problem() -> None:
    assert {kind for kind, _ in TROUBLES} == set(ProblemKind)


def test_a_root_that_hangs_is_waited_for_once_and_not_by_each_probe(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(health, "problems_of_root", lambda *_: answers.wait() and [])
    journal = Journal(settings.home)
    doors = HealthEndpoints(journal, settings, Readings(journal, settings), Metrics(), None, follows=False)

    async def probe() -> str:
        reply = await asyncio.wait_for(doors.metrics(cast("Request", None)), 20)
        return bytes(reply.body).decode()

    try:
        for answers_s in (0.01, 60.0):
            monkeypatch.setattr(health, "_ROOT_ANSWERS_S", answers_s)
            assert 'kind="root"' in asyncio.run(probe())
    finally:
        answers.set()
    journal.close()


def run_events(producer: str, run: str, *states: str) -> Iterator[bytes]:
    for at, state in enumerate(states):
        yield json.dumps(
            {
                "eventType": state,
                "eventTime": f"2026-01-31T12:00:0{at}Z",
                "producer": producer,
                "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
                "run": {"runId": f"01a1fd6a-9e75-7d78-870f-{run}"},
                "job": {"namespace": "flink", "name": "count"},
                "inputs": [],
                "outputs": [],
            }
        ).encode()


def test_a_producer_of_which_no_run_ends_is_named(
    home: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = {"https://endless.example": 3, "https://some-end.example": 4, "https://few.example": 2}
    with contextlib.closing(Journal(home)) as journal:
        for place, (producer, count) in enumerate(began.items()):
            for number in range(count):
                states = ["START", "COMPLETE"] if number == 3 else ["START", "RUNNING"]
                for body in run_events(producer, f"{place:06}{number:06}", *states):
                    journal.append(Kind.OPENLINEAGE, body)
    assert (runs_end(settings).level, status_of(settings).notes) == (Level.OK, ())
    later_ns = time.time_ns() + 3_601 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later_ns)
    says = "none of the 3 runs of https://endless.example has ended, and all have been silent for an hour"
    fix = "docs/openlineage.md#flink says what its ends need"
    assert status_of(settings).notes == (f"{says}; {fix}",)
    diagnosis = runs_end(settings)
    assert (diagnosis.level, diagnosis.says, diagnosis.fix) == (Level.NOTE, says, fix)
