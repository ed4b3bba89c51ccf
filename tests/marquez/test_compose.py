"""The local stack, as far as it can be judged without Docker; with it, `docker compose config` judges too."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

FILE = Path(__file__).parents[2] / "docker-compose.yml"


@pytest.fixture(scope="module")
def stack() -> dict[str, Any]:
    content = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_every_image_has_a_pinned_version(stack: dict[str, Any]) -> None:
    images = {name: service["image"] for name, service in stack["services"].items()}
    assert images == {
        "database": "postgres:15",
        "marquez": "marquezproject/marquez:0.51.1",
        "page": "marquezproject/marquez-web:0.51.1",
    }


def test_every_service_says_whether_it_is_healthy_and_starts_after_what_it_needs(
    stack: dict[str, Any],
) -> None:
    services = stack["services"]
    assert all(service["healthcheck"]["test"][0] == "CMD" for service in services.values())
    needs = {name: service.get("depends_on", {}) for name, service in services.items()}
    healthy = {"condition": "service_healthy"}
    assert needs == {"database": {}, "marquez": {"database": healthy}, "page": {"marquez": healthy}}


def test_nothing_listens_beyond_this_machine(stack: dict[str, Any]) -> None:
    ports = [port for service in stack["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 3
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z_]+:-(\d+)\}:\1", port) for port in ports)


def test_what_marquez_was_told_outlives_its_container(stack: dict[str, Any]) -> None:
    (volume,) = stack["services"]["database"]["volumes"]
    name, _, path = volume.partition(":")
    assert name in stack["volumes"]
    assert path == "/var/lib/postgresql/data"


def test_the_health_check_of_marquez_tells_well_from_ill() -> None:
    """The command itself, against a server on this machine in the place of Marquez's admin port."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed: the health check cannot run here")
    services = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    script = services["marquez"]["healthcheck"]["test"][3]
    for status, code in (("200 OK", 0), ("500 Internal Server Error", 1)):
        assert run_against(script, status) == code
    assert run_against(script, None) != 0


def run_against(script: str, status: str | None) -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                request = connection.recv(4096)
                assert request.startswith(b"GET /healthcheck HTTP/1.0\r\n")
                connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

        if status is None:
            server.close()
        else:
            threading.Thread(target=answer, daemon=True).start()
        command = ["bash", "-c", script.replace("/5001", f"/{port}")]
        return subprocess.run(command, check=False, capture_output=True, timeout=10).returncode


def test_docker_compose_takes_the_file() -> None:
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed: `docker compose config` cannot judge the file")
    command = ["docker", "compose", "--file", str(FILE), "config", "--quiet"]
    judged = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if "unknown" in judged.stderr:
        pytest.skip("the docker here has no compose plug-in: `docker compose config` cannot judge the file")
    assert judged.returncode == 0, judged.stderr
