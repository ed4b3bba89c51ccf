"""`waybill dev`, tested with a real collector and a backend, but without a running Docker."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from served import Collector, event

from waybill.cli.dev.checks import look as look_around
from waybill.cli.dev.compose import Container, StackError, compose_file, containers_of, services_of
from waybill.cli.findings import Diagnosis
from waybill.cli.services import SERVICES, Waiting, waiting_by_projection
from waybill.transport import Journal, NotFoundError, Settings

if TYPE_CHECKING:
    from conftest import Run

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
SERVER = ROOT / "tests" / "marquez" / "contract_server.py"

Findings = dict[str, Diagnosis]


@pytest.fixture
def marquez() -> Iterator[str]:
    """The address of a server that behaves like Marquez."""
    command = [sys.executable, str(SERVER), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[0]
        server.terminate()


@pytest.fixture
def collect(tmp_path: Path) -> Iterator[Callable[..., Collector]]:
    """Start a collector like that of the stack."""
    started: list[Collector] = []

    def collect(*options: str) -> Collector:
        started.append(Collector(tmp_path / "collected", "--drain-timeout", "0", *options))
        return started[-1]

    yield collect
    for collector in started:
        collector.stop()


@pytest.fixture
def look(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Findings]:
    """The findings in the test's own environment, in which all ports are closed unless given."""

    def look(**variables: str) -> Findings:
        for service in SERVICES:
            monkeypatch.setenv(service.variable, "1")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        settings = Settings.load({"home": home}, cwd=home.parent)
        return {found.check: found for found in look_around(settings, None)}

    return look


def port(url: str) -> str:
    return url.rpartition(":")[2]


def test_a_service_that_does_not_run_is_named_with_its_url_and_how_to_start_it(
    look: Callable[..., Findings], home: Path
) -> None:
    found = look()
    for service in SERVICES:
        one = found[service.name]
        assert one.level == "broken"
        assert "http://localhost:1: nothing answers there" in one.says
        assert (one.fix or "").startswith("waybill dev up")
    assert found["home"].level == "ok"
    assert not home.exists(), "a check makes nothing"


def test_a_running_stack_is_healthy_and_nothing_waits(
    look: Callable[..., Findings], marquez: str, collect: Callable[..., Collector]
) -> None:
    collector = collect("--runner", "none")
    found = look(
        WAYBILL_PORT=port(collector.url),
        MARQUEZ_PORT=port(marquez),
        MARQUEZ_URL=marquez,
        OPENLINEAGE_URL=f"{collector.url}/api/v1/lineage",
    )
    well = {name for name, one in found.items() if one.level == "ok"}
    assert {"collector", "marquez", "marquez_url", "OPENLINEAGE_URL", "home"} <= well
    assert {"page", "prometheus", "grafana"} & well == set()


def test_the_collector_s_backlog_is_shown_with_what_holds_it_up(
    look: Callable[..., Findings], collect: Callable[..., Collector]
) -> None:
    collector = collect("--marquez-url", "http://127.0.0.1:1")
    collector.post("/api/v1/lineage", event())
    held_up: Diagnosis | None = None
    while held_up is None or held_up.level != "broken":
        held_up = look(WAYBILL_PORT=port(collector.url)).get("collector: marquez")
    assert re.match(r"1 entry waits, the oldest for \d+ s; http://127.0.0.1:1 does not answer", held_up.says)


def test_a_wrong_url_is_shown_with_the_setting_that_names_it(
    look: Callable[..., Findings], marquez: str, collect: Callable[..., Collector]
) -> None:
    collector = collect("--runner", "none")
    found = look(MARQUEZ_URL=collector.url, OPENLINEAGE_URL=marquez)
    assert found["marquez_url"].level == "broken"
    assert "(environment MARQUEZ_URL)" in found["marquez_url"].says
    assert found["OPENLINEAGE_URL"].level == "note"
    assert "is a Marquez" in found["OPENLINEAGE_URL"].says
    found = look(OPENLINEAGE_URL="http://127.0.0.1:1")
    assert found["OPENLINEAGE_URL"].level == "broken"


def test_another_server_at_the_collector_s_port_is_not_taken_for_a_collector(
    look: Callable[..., Findings], marquez: str
) -> None:
    found = look(WAYBILL_PORT=port(marquez))
    assert (found["collector"].level, found["collector"].fix) == (
        "broken",
        "give its port with WAYBILL_PORT",
    )


def test_a_collector_with_keys_shows_its_backlog_only_with_a_key(
    look: Callable[..., Findings], collect: Callable[..., Collector], waybill: Run, tmp_path: Path
) -> None:
    Journal(tmp_path / "collected").close()
    key = waybill("keys", "add", "tests", "--role", "read", "--home", tmp_path / "collected").stdout.split()[
        -1
    ]
    collector = collect("--marquez-url", "http://127.0.0.1:1")
    assert "WAYBILL" not in key
    assert look(WAYBILL_PORT=port(collector.url))["waiting"].level == "note"
    assert "waiting" not in look(WAYBILL_PORT=port(collector.url), OPENLINEAGE_API_KEY=key)


def test_something_broken_is_exit_code_1(waybill: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYBILL_PORT", "1")
    Journal(home).close()
    done = waybill("dev", "status", "--home", home)
    assert done.returncode == 1
    assert "broken  collector: Waybill's collector at http://localhost:1: nothing answers" in done.stdout
    done = waybill("dev", "status", "--home", home, "--json")
    assert done.returncode == 1
    assert {one["check"] for one in json.loads(done.stdout)} >= {service.name for service in SERVICES}


@pytest.mark.parametrize("command", ["up", "down", "logs"])
def test_without_docker_it_says_what_to_install(
    waybill: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = waybill("dev", command)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("waybill: docker is not installed; install Docker")


def test_status_without_docker_asks_the_urls(
    look: Callable[..., Findings], marquez: str, tmp_path: Path
) -> None:
    found = look(PATH=str(tmp_path), MARQUEZ_PORT=port(marquez))
    assert found["docker"].level == "note"
    assert found["marquez"].level == "ok"


def test_a_docker_that_does_not_work_is_reported_in_its_own_words(waybill: Run) -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed, so it cannot fail")
    asked = (["docker", "compose", "version"], ["docker", "version"])
    if all(subprocess.run(one, check=False, capture_output=True).returncode == 0 for one in asked):
        pytest.skip("the docker here works")
    done = waybill("dev", "up", "--file", FILE)
    assert done.returncode == 1
    assert re.match(r"waybill: docker has no (compose plug-in|daemon that answers) \(.+\); ", done.stderr)


def test_what_runs_is_told_in_json_and_as_csv(
    waybill: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'this is no JSON'\n", encoding="utf-8")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    up = waybill("dev", "up", "collector", "--file", FILE, "--json")
    assert [one["service"] for one in json.loads(up.stdout)] == ["collector"], up.stderr
    listed = waybill("dev", "up", "collector", "--file", FILE, "--csv").stdout.splitlines()
    assert (listed[0], listed[1].split(",")[0], len(listed)) == ("service,at,what", "collector", 2)
    down = waybill("dev", "down", "--file", FILE, "--json")
    assert json.loads(down.stdout) == {"running": [], "volumes_deleted": False}


def test_the_file_is_found_in_a_folder_above_or_the_checkout_and_is_never_another_project_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "project" / "below"
    below.mkdir(parents=True)
    own = tmp_path / "project" / "docker-compose.yml"
    own.write_text("name: waybill\nservices: {}\n", encoding="utf-8")
    monkeypatch.chdir(below)
    assert compose_file(None) == own
    own.write_text("name: shop\nservices: {}\n", encoding="utf-8")
    assert compose_file(None) == FILE
    assert compose_file(own) == own
    with pytest.raises(NotFoundError, match="is not a file; give the path"):
        compose_file(tmp_path / "missing.yml")
    own.write_text("- 5\n", encoding="utf-8")
    with pytest.raises(StackError, match="names no services"):
        services_of(own)


def test_a_file_of_the_stack_that_is_not_there_is_exit_code_2(called: Run, tmp_path: Path) -> None:
    done = called("dev", "up", "--file", tmp_path / "missing.yml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "missing.yml is not a file; give the path of Waybill's docker-compose.yml" in done.stderr


def test_the_services_are_those_of_the_file() -> None:
    stack = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    ports = {published for one in stack["services"].values() for published in one.get("ports", [])}
    for service in SERVICES:
        assert service.name in stack["services"]
        assert f"127.0.0.1:${{{service.variable}:-{service.port}}}:{service.port}" in ports
    assert set(services_of(FILE)) - {service.name for service in SERVICES} == {"database"}


@pytest.mark.parametrize("form", ["{0}\n{1}\n", "[{0},{1}]"], ids=["lines", "array"])
def test_docker_s_list_of_containers_is_read_in_either_form(form: str) -> None:
    """As Docker's documentation of `docker compose ps --format json` has it."""
    well = '{"ID":"1","Service":"marquez","State":"running","Health":"healthy","ExitCode":0,"Publishers":[]}'
    ended = '{"ID":"2","Service":"database","State":"exited","Health":"","ExitCode":1}'
    found = containers_of(form.format(well, ended))
    assert found["marquez"] == Container("marquez", "running", "healthy")
    assert found["marquez"].is_well
    assert (found["database"].is_well, found["database"].says) == (False, "exited with code 1")
    assert containers_of("") == {}


def test_the_backlog_is_read_from_the_collector_s_metrics() -> None:
    text = (
        "# TYPE waybill_projection_behind gauge\n"
        'waybill_projection_behind{projection="marquez"} 12\n'
        'waybill_projection_age_seconds{projection="marquez"} 3.5\n'
        'waybill_projection_behind{projection="layout"} 0\n'
    )
    assert waiting_by_projection(text) == {"layout": Waiting(0, 0.0), "marquez": Waiting(12, 3.5)}
