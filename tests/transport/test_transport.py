"""The transport through the OpenLineage client, as a pipeline uses it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    Dataset,
    DatasetEvent,
    Job,
    JobEvent,
    Run,
    RunEvent,
    RunState,
    StaticDataset,
)
from openlineage.client.uuid import generate_new_uuid

from waybill.transport import (
    AdmissionError,
    Entry,
    Journal,
    Kind,
    Rejects,
    SettingsError,
    WaybillConfig,
    WaybillTransport,
)

TYPE = "waybill.transport.WaybillTransport"


RUN = "01a1fd6a-aa2c-772e-b9bc-000000000001"


def event(run_id: str | None = None, time: str = "2026-11-21T10:00:00Z") -> RunEvent:
    run = Run(run_id or str(generate_new_uuid()))
    return RunEvent(
        eventType=RunState.COMPLETE, eventTime=time, run=run, job=Job("ns", "job"), producer="https://p"
    )


def transport(home: Path, **given: object) -> WaybillTransport:
    return WaybillTransport(WaybillConfig.from_dict({"type": TYPE, "home": home, "runner": "none", **given}))


def entries(home: Path) -> list[Entry]:
    return Journal(home).read(0, limit=100_000)


def run_ids(home: Path) -> list[str]:
    return [json.loads(entry.body)["run"]["runId"] for entry in entries(home)]


def test_it_is_chosen_by_the_clients_yaml_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {
        "transport": {"type": TYPE, "home": str(tmp_path / "home"), "runner": "none", "system_name": "edge"}
    }
    (tmp_path / "openlineage.yml").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    OpenLineageClient().emit(event(RUN))
    assert run_ids(tmp_path / "home") == [RUN]
    assert entries(tmp_path / "home")[0].system_name == "edge"


def test_it_is_chosen_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", TYPE)
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RUNNER", "none")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__PROVENANCE_ENABLED", "true")
    client = OpenLineageClient()
    assert isinstance(client.transport, WaybillTransport)
    assert client.transport.settings.provenance_enabled
    client.emit(event(RUN))
    assert run_ids(tmp_path / "home") == [RUN]


def test_it_is_chosen_by_the_constructor_and_inside_composite(tmp_path: Path) -> None:
    ours = {"type": TYPE, "home": str(tmp_path / "home"), "runner": "none"}
    theirs = {"type": "file", "log_file_path": str(tmp_path / "events.jsonl"), "append": True}
    client = OpenLineageClient(
        config={"transport": {"type": "composite", "transports": {"waybill": ours, "file": theirs}}}
    )
    client.emit(event(RUN))
    assert run_ids(tmp_path / "home") == [RUN]
    assert client.close()
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line) == json.loads(entries(tmp_path / "home")[0].body)


def test_every_kind_of_event_is_kept_as_the_client_has_it(tmp_path: Path) -> None:
    client = OpenLineageClient(transport=transport(tmp_path))
    client.emit(event())
    client.emit(
        JobEvent(
            eventTime="2026-11-21T10:00:00Z", job=Job("ns", "j"), inputs=[], outputs=[], producer="https://p"
        )
    )
    client.emit(
        DatasetEvent(eventTime="2026-11-21T10:00:00Z", dataset=StaticDataset("ns", "d"), producer="https://p")
    )
    urls = [json.loads(entry.body)["schemaURL"].rsplit("/")[-1] for entry in entries(tmp_path)]
    assert urls == ["RunEvent", "JobEvent", "DatasetEvent"]
    assert Dataset("ns", "d").namespace == "ns"


@pytest.mark.parametrize("strict", [True, False])
def test_an_event_that_is_refused_is_kept_as_a_reject(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    strict: bool,  # noqa: FBT001 - of a table
) -> None:
    waybill = transport(tmp_path, strict=strict, redact="run.facets.secret")
    refused = event(time="1903-12-17T10:35:00Z")
    refused.run.facets = {"secret": {"password": "a"}}  # type: ignore[dict-item] # what people do
    with pytest.raises(AdmissionError) if strict else contextlib.nullcontext():
        waybill.emit(refused)
    with contextlib.closing(Journal(tmp_path)) as journal:
        (reject,) = Rejects(journal).all()
        body = Rejects(journal).body(reject.id)
    assert "$.eventTime" in reject.reason
    assert body is not None
    assert (b"1903-12-17" in body, b"password" in body) == (True, False)
    assert ("waybill rejects" in caplog.text) is not strict


def test_an_event_without_a_bottom_is_refused_as_such(tmp_path: Path) -> None:
    endless: dict[str, object] = {}
    endless["again"] = endless
    bottomless = event()
    bottomless.run.facets = {"endless": endless}  # type: ignore[dict-item] # what people do
    with pytest.raises(AdmissionError, match="nested too deeply"):
        transport(tmp_path, strict=True).emit(bottomless)


def test_closing_while_the_journal_is_full_keeps_the_events_and_raises_nothing(tmp_path: Path) -> None:
    waybill = transport(tmp_path, durability="process", journal_max_bytes=2**20)
    waybill.emit(event(RUN))
    Journal(tmp_path).append(Kind.PROVENANCE, bytes(2 * 2**20))
    assert waybill.close()
    assert json.loads(entries(tmp_path)[0].body)["run"]["runId"] == RUN


@pytest.mark.parametrize("durability", ["power", "process"])
def test_close_says_that_nothing_is_left_undone(tmp_path: Path, durability: str) -> None:
    waybill = transport(tmp_path, durability=durability)
    for timeout_s in (-1, 0, 2.5):
        waybill.emit(event())
        assert waybill.wait_for_completion()
        assert waybill.close(timeout_s)
    assert len(entries(tmp_path)) == 3


def test_an_emit_imports_nothing_so_that_a_fork_beside_it_leaves_no_module_locked(tmp_path: Path) -> None:
    script = f"""
import os, sys
from waybill.transport import WaybillConfig, WaybillTransport
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
run = Run("0190a8b4-0000-7000-8000-000000000000")
at = "2026-11-21T10:00:00Z"
event = RunEvent(eventTime=at, producer="https://p", run=run, job=Job("n", "j"), eventType=RunState.START)
def emit_in_both(durability):
    home = os.path.join(sys.argv[1], durability)
    config = {{"type": "{TYPE}", "home": home, "runner": "none", "durability": durability}}
    transport = WaybillTransport(WaybillConfig.from_dict(config))
    known = set(sys.modules)
    transport.emit(event)
    if os.fork() == 0:
        transport.emit(event)
        os._exit(len(set(sys.modules) - known))
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    assert set(sys.modules) == known, set(sys.modules) - known
for durability in ("power", "process"):
    if os.fork() == 0:
        emit_in_both(durability)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, tmp_path], check=True, timeout=60)


def test_a_backend_that_is_down_or_hangs_never_reaches_the_pipeline(
    tmp_path: Path, end_runner: Callable[[Path], None]
) -> None:
    hanging = socket.create_server(("127.0.0.1", 0))
    try:
        url = f"http://127.0.0.1:{hanging.getsockname()[1]}"
        waybill = transport(tmp_path / "home", runner="child", marquez_url=url)
        ended = threading.Event()

        def pipeline() -> None:
            for _ in range(20):
                waybill.emit(event())
            waybill.close()
            ended.set()

        threading.Thread(target=pipeline, daemon=True).start()
        assert ended.wait(10)
        assert len(entries(tmp_path / "home")) == 20
    finally:
        hanging.close()
        end_runner(tmp_path / "home")


def test_an_unknown_setting_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"hom = .* is not a setting"):
        WaybillConfig.from_dict({"type": TYPE, "hom": str(tmp_path)})


def test_that_provenance_is_off_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    waybill = transport(tmp_path)
    waybill.emit(event())
    waybill.emit(event())
    (said,) = [record.message for record in caplog.records if "provenance_enabled" in record.message]
    assert said.startswith("provenance_enabled is off")
    assert said.endswith(f"`waybill settings apply --home {tmp_path} --provenance-enabled`")
