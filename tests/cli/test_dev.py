"""`waybill dev`, tested with a real collector and a backend, but without a running Docker."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from contract_server import ContractServer
from served import Collector, event

from waybill.cli.commands.dev import (
    SERVICES,
    Waiting,
    look_at_collector,
    look_at_services,
    waiting_by_projection,
)
from waybill.cli.findings import Diagnosis
from waybill.transport import Journal

if TYPE_CHECKING:
    from conftest import Run

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"

Findings = dict[str, Diagnosis]


@pytest.fixture
def marquez() -> Iterator[str]:
    """The address of a server that behaves like Marquez."""
    server = ContractServer().start()
    yield server.url
    server.refuse()


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
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Findings]:
    """The findings in the test's own environment, in which all ports are closed unless given."""

    def look(**variables: str) -> Findings:
        for service in SERVICES:
            monkeypatch.setenv(service.variable, "1")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return {found.check: found for found in (*look_at_services(None), *look_at_collector())}

    return look


def port(url: str) -> str:
    return url.rpartition(":")[2]


def test_a_service_that_does_not_run_is_named_with_its_url_and_how_to_start_it(
    look: Callable[..., Findings],
) -> None:
    found = look()
    for service in SERVICES:
        one = found[service.name]
        assert one.level == "broken"
        assert "http://localhost:1: nothing answers there" in one.says
        assert (one.fix or "").startswith("waybill dev up")


def test_a_running_stack_is_healthy_and_nothing_waits(
    look: Callable[..., Findings], marquez: str, collect: Callable[..., Collector]
) -> None:
    collector = collect("--runner", "none")
    found = look(
        WAYBILL_PORT=port(collector.url),
        MARQUEZ_PORT=port(marquez),
        OPENLINEAGE_URL=f"{collector.url}/api/v1/lineage",
    )
    well = {name for name, one in found.items() if one.level == "ok"}
    assert {"collector", "marquez", "OPENLINEAGE_URL"} <= well
    assert {"page", "prometheus", "grafana"} & well == set()


def test_the_collector_s_backlog_is_shown_with_what_holds_it_up(
    look: Callable[..., Findings], collect: Callable[..., Collector]
) -> None:
    collector = collect("--marquez-url", "http://127.0.0.1:1")
    collector.post("/api/v1/lineage", event())
    held_up: Diagnosis | None = None
    while held_up is None or held_up.level != "broken":
        held_up = look(WAYBILL_PORT=port(collector.url)).get("collector: marquez")
    assert re.match(
        r"1 entry waiting, the oldest for [\dms ]+: http://127.0.0.1:1 does not answer", held_up.says
    )


def test_a_url_that_leads_to_no_collector_is_broken(look: Callable[..., Findings], marquez: str) -> None:
    for url in (marquez, "http://127.0.0.1:1"):
        found = look(OPENLINEAGE_URL=url)["OPENLINEAGE_URL"]
        assert (found.level, found.fix) == ("broken", "set it to http://localhost:1")


def test_another_server_at_the_collector_s_port_is_not_taken_for_a_collector(
    look: Callable[..., Findings], marquez: str
) -> None:
    found = look(WAYBILL_PORT=port(marquez))["collector"]
    assert found.level == "broken"
    assert "or set WAYBILL_PORT" in (found.fix or "")


def test_a_collector_with_keys_shows_its_backlog_only_with_a_key(
    look: Callable[..., Findings], collect: Callable[..., Collector], called: Run, tmp_path: Path
) -> None:
    Journal(tmp_path / "collected").close()
    key = called("keys", "add", "tests", "--role", "read", "--home", tmp_path / "collected").stdout.split()[
        -1
    ]
    collector = collect("--marquez-url", "http://127.0.0.1:1")
    assert "WAYBILL" not in key
    assert look(WAYBILL_PORT=port(collector.url))["waiting"].level == "note"
    assert "waiting" not in look(WAYBILL_PORT=port(collector.url), OPENLINEAGE_API_KEY=key)


def test_status_without_docker_asks_the_urls(
    look: Callable[..., Findings], marquez: str, tmp_path: Path
) -> None:
    found = look(PATH=str(tmp_path), MARQUEZ_PORT=port(marquez))
    assert found["docker"].level == "note"
    assert found["marquez"].level == "ok"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a script in the place of Docker."""

    def put(script: str) -> None:
        docker = tmp_path / "bin" / "docker"
        docker.parent.mkdir(exist_ok=True)
        docker.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        docker.chmod(0o755)
        monkeypatch.setenv("PATH", str(docker.parent), prepend=os.pathsep)

    return put


def test_what_docker_says_of_its_failure_is_shown(waybill: Run, docker: Callable[[str], None]) -> None:
    docker("echo 'no daemon' >&2; exit 3")
    done = waybill("dev", "up", "--file", FILE)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"no daemon\nwaybill: docker compose up failed; ", done.stderr)


def test_a_service_that_does_not_answer_is_shown_with_the_state_of_its_container(
    look: Callable[..., Findings], docker: Callable[[str], None]
) -> None:
    """As Docker's documentation of `docker compose ps --format json` has it."""
    docker("""echo '{"ID":"1","Service":"marquez","Status":"Exited (1) 5 minutes ago","Publishers":[]}'""")
    found = look()
    assert found["marquez"].says.endswith("its container: Exited (1) 5 minutes ago")
    assert found["marquez"].fix == "waybill dev logs marquez"
    assert found["page"].fix == "waybill dev up; or set MARQUEZ_PAGE_PORT, if it has another port"


def test_what_runs_is_told_in_json_and_as_csv(waybill: Run, docker: Callable[[str], None]) -> None:
    docker("echo 'this is no JSON'")
    up = waybill("dev", "up", "collector", "--file", FILE, "--json")
    assert [one["service"] for one in json.loads(up.stdout)] == ["collector"], up.stderr
    listed = waybill("dev", "up", "collector", "--file", FILE, "--csv").stdout.splitlines()
    assert (listed[0], listed[1].split(",")[0], len(listed)) == ("service,url,what", "collector", 2)
    down = waybill("dev", "down", "--file", FILE, "--json")
    assert json.loads(down.stdout) == {"running": [], "volumes_deleted": False}


def test_the_file_is_found_in_a_folder_above_or_the_checkout_and_is_never_another_project_s(
    waybill: Run, docker: Callable[[str], None], tmp_path: Path
) -> None:
    docker('echo "$3"')
    below = tmp_path / "project" / "below"
    below.mkdir(parents=True)
    own = tmp_path / "project" / "docker-compose.yml"
    own.write_text("name: waybill\nservices: {}\n", encoding="utf-8")
    assert waybill("dev", "logs", cwd=below).stdout.strip() == str(own)
    own.write_text("name: shop\nservices: {}\n", encoding="utf-8")
    assert Path(waybill("dev", "logs", cwd=below).stdout.strip()).samefile(FILE)
    assert waybill("dev", "logs", "--file", own).stdout.strip() == str(own)


def test_the_services_are_those_of_the_file() -> None:
    stack = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    ports = {published for one in stack["services"].values() for published in one.get("ports", [])}
    for service in SERVICES:
        assert service.name in stack["services"]
        assert f"127.0.0.1:${{{service.variable}:-{service.port}}}:{service.port}" in ports
    assert set(stack["services"]) - {service.name for service in SERVICES} == {"database"}


def test_the_backlog_is_read_from_the_collector_s_metrics() -> None:
    text = (
        "# TYPE waybill_projection_behind gauge\n"
        'waybill_projection_behind{projection="marquez"} 12\n'
        'waybill_projection_age_seconds{projection="marquez"} 3.5\n'
        'waybill_projection_behind{projection="layout"} 0\n'
    )
    assert waiting_by_projection(text) == {"layout": Waiting(0, 0.0), "marquez": Waiting(12, 3.5)}
