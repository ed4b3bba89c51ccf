"""The runbook, walked through: what breaks a collector raises the alert, and what a section says ends it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
import yaml
from contract_server import ContractServer
from programs import MONITORING, Prometheus, path_of
from served import JSON, PROGRAM, Collector, event, record
from small_disks import fill_disk, mounted_tmpfs
from waiting import wait_until

from waybill.lineage.levels.history import DAY_MS, OWNER, Slot, put_slot, read_slots
from waybill.transport import Journal, Kind
from waybill.transport.config import Settings
from waybill.transport.fallback import fallback_of

LINEAGE = "/api/v1/lineage"
WINDOW_S = 11 * 60
"""After this time, what `increase(…[10m])` counted is forgotten."""
EXPRESSIONS: dict[str, list[str]] = {}
for group in yaml.safe_load((MONITORING / "rules.yml").read_text(encoding="utf-8"))["groups"]:
    for rule in group["rules"]:
        EXPRESSIONS.setdefault(rule["alert"], []).append(rule["expr"])
OBJECTIVES = """
tiers: [{datasets: lake/*, tier: critical}]
inventory: {csv: [inventory.csv]}
expected: {csv: [expected.csv]}
"""
WALKED: set[str] = set()


def walks(*alerts: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as the walk through the sections of some alerts."""
    WALKED.update(alerts)
    return pytest.mark.exhaustive


class Walk:
    """A collector that somebody watches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self._with = contextlib.ExitStack()
        self._started: list[Collector] = []

    def start(self, *options: str, home: Path | None = None, key: str = "", at: str = "") -> Collector:
        """Start a collector, at an address; the first one is watched."""
        path_of("prometheus")
        listen = ["--listen", at] if at else []
        self.collector = Collector(home or self.home, *options, *listen)
        self._started.append(self.collector)
        if len(self._started) == 1:
            self.prometheus = Prometheus(self.folder, self.collector.address, key=key)
            self._with.callback(self.prometheus.stop)
            wait_until(self.is_up, 30)
        return self.collector

    def is_up(self) -> bool:
        return [one["value"][1] for one in self.prometheus.ask('up{job="waybill"}')] == ["1"]

    def firing(self, alert: str, after_s: float = 0) -> list[list[dict[str, Any]]]:
        """The samples of each expression of an alert that has some."""
        at_s = time.time() + after_s
        return list(filter(None, (self.prometheus.ask(one, at_s) for one in EXPRESSIONS[alert])))

    def fires(self, *alerts: str) -> None:
        for alert in alerts:
            wait_until(lambda alert=alert: len(self.firing(alert)) == len(EXPRESSIONS[alert]), 120)  # type: ignore[misc]

    def is_over(self, *alerts: str, after_s: float = 0) -> None:
        for alert in alerts:
            wait_until(lambda alert=alert: self.is_up() and not self.firing(alert, after_s), 60)  # type: ignore[misc]

    def run(self, *command: object, code: int = 0) -> str:
        """Run a command for the home, as the section says."""
        done = subprocess.run(
            [*PROGRAM, *map(str, command)], check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def for_home(self, *command: object, code: int = 0) -> str:
        return self.run(*command, "--home", self.home, code=code)

    def post(self, body: bytes = b"", *, status: int = 201, key: str = "") -> None:
        headers = JSON | ({"Authorization": f"Bearer {key}"} if key else {})
        assert self.collector.post(LINEAGE, body or event(), headers).status == status

    def end(self) -> None:
        for collector in self._started:
            collector.process.kill()
            collector.process.communicate()
        self._with.close()


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    walk = Walk(tmp_path)
    yield walk
    walk.end()


@pytest.fixture
def server() -> Iterator[ContractServer]:
    server = ContractServer()
    yield server
    server.refuse()


def one_event(number: int = 0) -> bytes:
    """Another event each time."""
    run = {"runId": f"01a1fd6a-9e75-7d78-870f-{number:012x}"}
    return event(eventType="COMPLETE", run=run)


def test_each_alert_is_walked_through() -> None:
    assert EXPRESSIONS.keys() == WALKED


@walks("CollectorDown")
def test_a_collector_that_is_killed_is_started_again(walk: Walk) -> None:
    walk.start("--runner", "none")
    walk.collector.process.send_signal(signal.SIGKILL)
    walk.fires("CollectorDown")
    walk.start("--runner", "none", at=walk.collector.address)
    walk.is_over("CollectorDown")


def large_event() -> bytes:
    return event(producer=f"https://example.org/{secrets.token_hex(100_000)}")


@walks("IntakeFails", "JournalNearlyFull")
def test_a_full_journal_gets_more_room(walk: Walk) -> None:
    walk.start("--runner", "none", "--provenance-enabled", "--journal-max-bytes", "1MiB")
    walk.post()
    wait_until(lambda: walk.collector.post(LINEAGE, large_event()).status == 503, 60)
    for number in range(60):
        walk.post(one_event(number), status=503)
        time.sleep(0.05)
    walk.fires("IntakeFails", "JournalNearlyFull")
    walk.for_home("settings", "apply", "--journal-max-bytes", "20MiB")
    wait_until(lambda: walk.collector.post(LINEAGE, one_event(99)).status == 201, 10)
    for number in range(100, 300):
        walk.post(one_event(number))
    walk.is_over("IntakeFails", "JournalNearlyFull")


@walks("EventsRefused")
def test_a_refused_event_is_corrected_and_sent_again(walk: Walk) -> None:
    walk.start("--runner", "none")
    walk.post(b"{}", status=422)
    walk.fires("EventsRefused")
    assert "eventTime" in walk.for_home("rejects", "list")
    (walk.folder / "corrected.json").write_bytes(event())
    (reject,) = json.loads(f"[{walk.for_home('rejects', 'list', '--json').strip()}]")
    rejected = reject[0] if isinstance(reject, list) else reject
    walk.for_home("rejects", "retry", rejected["id"], "--with", walk.folder / "corrected.json")
    walk.is_over("EventsRefused", after_s=WINDOW_S)


@walks("UnauthorisedAccess")
def test_who_has_no_key_is_refused_until_he_gets_one(walk: Walk) -> None:
    Journal(walk.home).close()
    walk.for_home("keys", "add", "operator", "--role", "admin")
    key = walk.for_home("keys", "add", "prometheus", "--role", "read").split()[-1]
    walk.start("--runner", "none", key=key)
    walk.post(status=401)
    walk.fires("UnauthorisedAccess")
    given = walk.for_home("keys", "add", "etl", "--role", "emit").split()[-1]
    wait_until(lambda: walk.collector.post(LINEAGE, event(), bearer(given)).status == 201, 30)
    walk.for_home("keys", "revoke", "etl")
    wait_until(lambda: walk.collector.post(LINEAGE, event(), bearer(given)).status == 401, 30)
    walk.is_over("UnauthorisedAccess", after_s=WINDOW_S)


def bearer(key: str) -> dict[str, str]:
    return JSON | {"Authorization": f"Bearer {key}"}


@walks("DiskFull")
def test_a_full_disk_gets_room(walk: Walk) -> None:
    with mounted_tmpfs(walk.folder / "disk") as disk:
        walk.home = disk / "home"
        walk.start("--runner", "none", "--root", str(walk.folder / "root"))
        filler = fill_disk(disk, but_bytes=2**20)
        walk.fires("DiskFull")
        filler.unlink()
        walk.is_over("DiskFull")
        walk.for_home("status")


@walks("RootIsAway")
def test_a_root_that_is_gone_is_put_back(walk: Walk) -> None:
    root = walk.folder / "root"
    walk.start("--provenance-enabled", "--root", str(root))
    assert walk.collector.post("/provenance", json.dumps([record()]).encode()).status == 202
    walk.for_home("flush")
    root.rename(walk.folder / "elsewhere")
    walk.fires("RootIsAway")
    (walk.folder / "elsewhere").rename(root)
    walk.is_over("RootIsAway")
    walk.for_home("flush")


@walks("DeliveryHeldUp")
def test_a_backend_that_is_down_is_started(walk: Walk, server: ContractServer) -> None:
    server.start()
    server.refuse()
    walk.start("--marquez-url", server.url)
    walk.post()
    walk.fires("DeliveryHeldUp")
    server.start()
    walk.is_over("DeliveryHeldUp")
    walk.for_home("status")


@walks("SettingIsWrong")
def test_a_wrong_key_of_a_backend_is_corrected(walk: Walk, server: ContractServer) -> None:
    server.api_key = "right"
    server.start()
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "waybill" / "config.yaml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("marquez_api_key: wrong\n")
    walk.start("--marquez-url", server.url)
    walk.post()
    walk.fires("SettingIsWrong")
    assert "marquez_api_key" in walk.for_home("status", code=1)
    config.write_text("marquez_api_key: right\n")
    walk.is_over("SettingIsWrong")
    config.unlink()


@walks("DeliveryLags")
def test_what_has_waited_for_long_is_flushed(walk: Walk) -> None:
    walk.start("--runner", "none", "--provenance-enabled")
    walk.post()
    walk.for_home("flush")
    walk.post(one_event(1))
    journal = apsw.Connection(str(walk.home / "journal.db"))
    journal.execute("UPDATE entries SET received_ms = received_ms - 3600000")
    journal.close()
    walk.fires("DeliveryLags")
    walk.for_home("flush")
    walk.is_over("DeliveryLags")


@walks("Poison")
def test_what_cannot_be_applied_is_tried_again(walk: Walk) -> None:
    walk.start("--runner", "none", "--provenance-enabled")
    walk.post()
    journal = apsw.Connection(str(walk.home / "journal.db"))
    journal.execute("UPDATE entries SET body = ?", (event().replace(b"START", b"OTHER"),))
    journal.close()
    walk.for_home("flush", code=1)
    walk.fires("Poison")
    assert walk.for_home("poison", "list")
    walk.for_home("poison", "retry", "--all")
    walk.is_over("Poison")


def filed(walk: Walk) -> Path:
    """A root with one compacted file, whose events the archive has."""
    root = walk.folder / "root"
    walk.start("--runner", "none", "--provenance-enabled", "--archive-enabled", "--root", str(root))
    assert walk.collector.post("/provenance", json.dumps([record()]).encode()).status == 202
    walk.for_home("flush")
    return root


def accept(walk: Walk, root: Path) -> None:
    """Settle each finding, as `waybill verify` says."""
    findings = re.findall(r" \[(\w+)\]$", walk.run("verify", root, code=1), re.MULTILINE)
    assert findings
    for finding in findings:
        walk.run("verify", root, "--accept", finding, "--why", "the disk was replaced")
    walk.run("verify", root)


@walks("FilesDamaged")
def test_a_damaged_file_is_restored_and_its_finding_settled(walk: Walk) -> None:
    root = filed(walk)
    (file,) = (root / "provenance" / "compacted").rglob("*.parquet")
    file.write_bytes(b"nonsense")
    later = record(did="01a1fd6a-9e75-7d78-870f-24897efac4a9")
    assert walk.collector.post("/provenance", json.dumps([later]).encode()).status == 202
    walk.for_home("flush")
    walk.fires("FilesDamaged")
    walk.for_home("repair", "--root", root)
    accept(walk, root)
    shutil.rmtree(root / "provenance" / "damaged")
    walk.is_over("FilesDamaged")
    walk.run("verify", root)


@walks("FilesDiffer")
def test_a_file_that_is_gone_is_restored(walk: Walk) -> None:
    root = filed(walk)
    (file,) = (root / "provenance" / "compacted").rglob("*.parquet")
    file.unlink()
    walk.for_home("flush")
    walk.fires("FilesDiffer")
    walk.run("verify", root, code=1)
    walk.for_home("repair", "--root", root)
    walk.is_over("FilesDiffer")
    accept(walk, root)


@walks("DeadLetters")
def test_what_a_backend_refused_is_sent_again(walk: Walk, server: ContractServer) -> None:
    server.start()
    server.fault = "422"
    walk.start("--marquez-url", server.url)
    walk.post()
    walk.fires("DeadLetters")
    assert walk.for_home("dead-letters", "list")
    server.fault = None
    walk.for_home("dead-letters", "retry", "--all")
    walk.is_over("DeadLetters")


@pytest.fixture
def own() -> Iterator[Path]:
    """A folder above which nobody else may write, as a fallback needs one."""
    folder = Path(tempfile.mkdtemp(prefix=".waybill-tests-", dir=Path.home()))
    yield folder
    shutil.rmtree(folder)


@walks("FallbackWaits")
def test_what_waits_in_a_fallback_is_adopted(walk: Walk, monkeypatch: pytest.MonkeyPatch, own: Path) -> None:
    fallback = own / "fallback"
    fallback.mkdir(0o700)
    monkeypatch.setenv("WAYBILL_FALLBACK_HOME", str(fallback))
    walk.start("--runner", "none", "--provenance-enabled")
    folder = fallback_of(Settings.load({"home": walk.home}, cwd=walk.folder))
    assert folder is not None
    folder.mkdir(0o700)
    with contextlib.closing(Journal(folder)) as journal:
        journal.append(Kind.OPENLINEAGE, one_event(5))
    walk.fires("FallbackWaits")
    assert "1 entry waits" in walk.for_home("status", code=1)
    walk.for_home("flush")
    walk.is_over("FallbackWaits")


@walks("EventLogsUnread")
def test_event_logs_that_cannot_be_read_are_put_there(walk: Walk) -> None:
    logs = walk.folder / "logs"
    walk.start("--runner", "none", "--event-logs", str(logs), "--event-logs-every-s", "1")
    walk.fires("EventLogsUnread")
    logs.mkdir()
    walk.is_over("EventLogsUnread")


def past(walk: Walk) -> None:
    """Let four days pass in the history of the levels, so that the next measurement is recorded."""
    walk.collector.stop()
    with contextlib.closing(Journal(walk.home)) as journal:
        slots = read_slots(journal)
        journal.commit(OWNER, delete=list(journal.state(OWNER)))
        for slot in slots:
            old = Slot(slot.at_ms - 4 * DAY_MS, slot.counts, slot.latencies)
            put_slot(journal, [], old, {})


def wrote(name: str, now: datetime, number: int = 0, **facets: object) -> bytes:
    dataset = {"namespace": "lake", "name": name, "facets": facets}
    run = {"runId": f"01a1fd6a-9e75-7d78-870f-{number:012x}"}
    inputs = [{"namespace": "ftp", "name": "raw"}]
    return event(eventType="COMPLETE", eventTime=now.isoformat(), run=run, inputs=inputs, outputs=[dataset])


@walks(
    *("Maintenance", "MissingLineage", "IncompleteLineage", "ContractDrift", "LevelMissed"),
    *("BudgetBurnsFast", "BudgetBurnsSlowly", "BudgetBurnsTwice"),
)
def test_lineage_that_is_missing_late_or_incomplete_is_sent(walk: Walk) -> None:
    Journal(walk.home).close()
    now = datetime.now(UTC)
    window = f"maintenance: [{{begins: {now.isoformat()}, ends: {(now + timedelta(days=1)).isoformat()}}}]\n"
    files = {
        "slis.yaml": OBJECTIVES + window,
        "inventory.csv": "namespace,name\nlake,orders\nlake,items\n",
        "expected.csv": "source_namespace,source,target_namespace,target\nftp,raw,lake,orders\n",
    }
    for name, text in files.items():
        (walk.home / name).write_text(text, encoding="utf-8")
    walk.start()
    walk.post(wrote("items", now - timedelta(hours=2)))
    walk.fires("Maintenance")
    assert walk.firing("MissingLineage") == []

    (walk.home / "slis.yaml").write_text(OBJECTIVES, encoding="utf-8")
    past(walk)
    walk.start(at=walk.collector.address)
    walk.fires("MissingLineage", "IncompleteLineage", "ContractDrift", "LevelMissed")
    walk.fires("BudgetBurnsFast", "BudgetBurnsSlowly", "BudgetBurnsTwice")
    walk.is_over("Maintenance")
    breaches = json.loads(walk.for_home("slis", "--json", code=1))["breaches"]
    assert {"orders", "items"} <= {one["dataset"] for one in breaches}

    facets = {
        "ownership": {"owners": [{"name": "ada"}]},
        "schema": {"fields": [{"name": "a", "type": "int"}]},
    }
    for number in range(1, 60):
        walk.post(wrote(("orders", "items")[number % 2], datetime.now(UTC), number, **facets))
    external = f'{OBJECTIVES}external: ["ftp/*"]\n'
    (walk.home / "slis.yaml").write_text(external, encoding="utf-8")
    past(walk)
    walk.start(at=walk.collector.address)
    wait_until(lambda: walk.prometheus.ask("waybill_sli_value"), 60)
    walk.is_over("MissingLineage", "IncompleteLineage", "ContractDrift", "LevelMissed")
    walk.is_over("BudgetBurnsFast", "BudgetBurnsSlowly", "BudgetBurnsTwice")
