"""The local stack, as far as it can be judged without Docker; with it, `docker compose config` judges too."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from waybill.exporter.health import ProblemKind

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
BUILT = {"collector"}
"""What is made of the Dockerfile; the rest are others' images."""
DASHBOARDS = sorted(path.name for path in (ROOT / "monitoring" / "grafana").glob("*.json"))


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


@pytest.fixture(scope="module")
def steps() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with what it is told."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def test_every_image_has_a_pinned_version(stack: dict[str, Any], steps: list[tuple[str, str]]) -> None:
    images = [service["image"] for name, service in stack["services"].items() if name not in BUILT]
    images += [rest.split()[0] for word, rest in steps if word == "FROM"]
    assert [image for image in images if not re.search(r":v?\d+\.\d+(\.\d+)?(-[a-z-]+)?$", image)] == []


def test_every_service_says_whether_it_is_healthy(
    stack: dict[str, Any], steps: list[tuple[str, str]]
) -> None:
    unsaid = {name for name, service in stack["services"].items() if "healthcheck" not in service}
    assert unsaid == BUILT, "the Dockerfile says it"
    assert "HEALTHCHECK" in dict(steps)
    others = [service["healthcheck"] for name, service in stack["services"].items() if name not in BUILT]
    assert all(check["test"][0] == "CMD" for check in others)


def test_nothing_listens_beyond_this_machine(stack: dict[str, Any]) -> None:
    ports = [port for service in stack["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 7
    assert len(set(ports)) == len(ports)
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-(\d+)\}:\1", port) for port in ports)
    assert not any(service.get("network_mode") for service in stack["services"].values())


@pytest.mark.parametrize(
    ("setting", "service"), [("WAYBILL_PUBLIC_URL", "collector"), ("WAYBILL_MARQUEZ_PAGE_URL", "page")]
)
def test_links_lead_where_a_browser_reaches_the_service(
    stack: dict[str, Any], setting: str, service: str
) -> None:
    (port,) = stack["services"][service]["ports"]
    published = port.removeprefix("127.0.0.1:").rpartition(":")[0]
    assert stack["services"]["collector"]["environment"][setting] == f"http://localhost:{published}"


def test_every_mounted_file_is_there_and_read_only(stack: dict[str, Any]) -> None:
    mounts = [
        volume.split(":")
        for service in stack["services"].values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    ]
    assert {mode for _, _, mode in mounts} == {"ro"}
    mounted = {(ROOT / source).resolve() for source, _, _ in mounts}
    files = {path for path in (ROOT / "monitoring").rglob("*") if path.is_file()}
    assert mounted == {path for path in files if path.suffix not in {".py", ".pyc"}}, (
        "the code makes the others"
    )


def test_marquez_is_told_to_delete_what_is_old(stack: dict[str, Any]) -> None:
    marquez = stack["services"]["marquez"]
    (mount,) = marquez["volumes"]
    assert mount.split(":")[1] == marquez["environment"]["MARQUEZ_CONFIG"]
    days = read("marquez.yml")["dbRetention"]["retentionDays"]
    page = (ROOT / "docs" / "marquez.md").read_text(encoding="utf-8")
    assert f"older than {days} days" in page


def test_the_configuration_names_what_is_mounted_and_served(stack: dict[str, Any]) -> None:
    services = stack["services"]
    inside = {
        volume.split(":")[1]
        for one in ("prometheus", "alertmanager", "grafana")
        for volume in services[one]["volumes"]
    }
    prometheus = read("prometheus.yml")
    assert set(prometheus["rule_files"]) <= inside
    targets = [
        target
        for scrape in prometheus["scrape_configs"]
        for static in scrape["static_configs"]
        for target in static["targets"]
    ]
    targets += [
        target
        for manager in prometheus["alerting"]["alertmanagers"]
        for static in manager["static_configs"]
        for target in static["targets"]
    ]
    sources = read("grafana/datasources.yml")["datasources"]
    targets += [source["url"].removeprefix("http://") for source in sources]
    for target in targets:
        name, _, port = target.partition(":")
        assert any(published.endswith(f":{port}") for published in services[name]["ports"])
    (provider,) = read("grafana/dashboards.yml")["providers"]
    folder = provider["options"]["path"]
    assert {f"{folder}/{name}" for name in DASHBOARDS} == {path for path in inside if path.startswith(folder)}
    assert services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in inside
    provisioned = {(source["name"], source["type"]) for source in sources}
    for name in DASHBOARDS:
        variables = {one["name"]: one for one in dashboard(name)["templating"]["list"]}
        named = {
            (variables[one]["current"]["value"], variables[one]["query"]) for one in ("metrics", "lineage")
        }
        assert named == provisioned
        used = {panel["datasource"]["uid"] for panel in dashboard(name)["panels"]}
        assert used <= {"${metrics}", "${lineage}"}


def read(name: str) -> Any:  # noqa: ANN401 - whatever YAML holds
    return yaml.safe_load((ROOT / "monitoring" / name).read_text(encoding="utf-8"))


def dashboard(name: str) -> dict[str, Any]:
    found = json.loads((ROOT / "monitoring" / "grafana" / name).read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def test_there_is_an_alert_for_each_kind_of_problem() -> None:
    rules = {rule["expr"] for group in read("rules.yml")["groups"] for rule in group["rules"]}
    assert rules >= {f'waybill_problem{{kind="{kind}"}} == 1' for kind in ProblemKind}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_panels_do_not_lie_over_each_other(name: str) -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in dashboard(name)["panels"])
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def test_the_image_is_made_of_files_that_are_there(steps: list[tuple[str, str]]) -> None:
    copied = [
        source
        for word, rest in steps
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    allowed = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(copied) == sorted(line[1:] for line in allowed if line.startswith("!"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    rooms = {path.name for path in (ROOT / "src" / "waybill").iterdir() if path.is_symlink()}
    others = {"src", "pyproject.toml", "uv.lock", project["project"]["readme"], "LICENSE"}
    assert rooms | others == set(copied)
    told = " ".join(rest for word, rest in steps if word == "RUN")
    extras = set(re.findall(r"--extra (\w+)", told))
    assert extras == {"collector", "export", "kafka", "postgres", "sql"}, "not Spark, not the demo"
    assert extras <= set(project["project"]["optional-dependencies"])
    (uv,) = re.findall(r"uv==(\S+)", told)
    assert f"UV_VERSION := {uv}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_image_serves_its_own_home_as_nobody_special(
    stack: dict[str, Any], steps: list[tuple[str, str]]
) -> None:
    last = dict(steps)
    assert last["USER"] not in {"root", "0"}
    assert f"WAYBILL_HOME={last['VOLUME']}" in last["ENV"]
    assert f"WAYBILL_LISTEN=0.0.0.0:{last['EXPOSE']}" in last["ENV"]
    own = stack["services"]["collector"]
    assert own["volumes"] == [f"waybill-home:{last['VOLUME']}"]
    assert own["ports"][0].endswith(f":{last['EXPOSE']}")
    assert (json.loads(last["ENTRYPOINT"]), json.loads(last["CMD"])) == (["waybill"], ["serve"])
    assert own["command"] == ["serve", "--without-keys", "--allow-host", "collector"]


@pytest.mark.parametrize("service", ["collector", "marquez"])
def test_a_health_check_tells_well_from_ill(
    stack: dict[str, Any], steps: list[tuple[str, str]], service: str
) -> None:
    """The command itself, against a server on this machine in the service's place."""
    if service == "collector":
        words = json.loads(dict(steps)["HEALTHCHECK"].partition(" CMD ")[2])
        command, port, path = [sys.executable, *words[1:]], "8090", "/health/ready"
    else:
        if shutil.which("bash") is None:
            pytest.skip("bash is not installed: the health check cannot run here")
        script = stack["services"]["marquez"]["healthcheck"]["test"][3]
        command, port, path = ["bash", "-c", script], "5001", "/healthcheck"
    for status, is_well in (("200 OK", True), ("500 Internal Server Error", False), (None, False)):
        assert (run_against(command, port, path, status) == 0) == is_well


def run_against(command: list[str], port: str, path: str, status: str | None) -> int:
    """How a command ends whose port answers so, or not at all."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = str(server.getsockname()[1])

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                request = connection.recv(4096)
                assert request.startswith(f"GET {path} HTTP/1.".encode())
                connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        if status is None:
            server.close()
        else:
            threading.Thread(target=answer, daemon=True).start()
        words = [word.replace(port, other) for word in command]
        return subprocess.run(words, check=False, capture_output=True, timeout=10).returncode


def test_docker_compose_takes_the_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed: `docker compose config` cannot judge the file")
    command = ["docker", "compose", "--file", str(FILE), "config", "--quiet"]
    judged = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "unknown" in judged.stderr:
        pytest.skip("the docker here has no compose plug-in: `docker compose config` cannot judge the file")
    assert judged.returncode == 0, judged.stderr
