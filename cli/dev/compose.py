"""Docker Compose, and the file that describes the stack."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
import yaml

from waybill.transport import NotFoundError, WaybillError

FILE: Final = "docker-compose.yml"
PROJECT: Final = "waybill"
"""The project name in the file, which distinguishes it from other projects' files."""

_CHECKOUT: Final = Path(__file__).parents[4]
"""The file's folder in a checkout; a wheel has no such file, since the image is built from the sources."""
_DOCKER_TIMEOUT_S: Final = 60.0


class StackError(WaybillError):
    """The local stack cannot be run here."""


class Container(msgspec.Struct, frozen=True, rename="pascal"):
    """One line of `docker compose ps --format json`; `health` is empty without a health check."""

    service: str
    state: str
    health: str = ""
    exit_code: int = 0

    @property
    def says(self) -> str:
        """The container's state in a few words."""
        if self.state == "exited":
            return f"exited with code {self.exit_code}"
        return f"{self.state}, {self.health}" if self.health else self.state

    @property
    def is_well(self) -> bool:
        """Whether the container runs and is healthy."""
        return self.state == "running" and self.health in {"", "healthy"}


class Compose:
    """Docker Compose with the stack's file."""

    def __init__(self, file: Path) -> None:
        docker = shutil.which("docker")
        if docker is None:
            raise StackError(
                "docker is not installed; install Docker with its compose plug-in "
                "(https://docs.docker.com/get-started/get-docker/), or run the services by other means"
            )
        self._docker = docker
        self._command = [docker, "compose", "--file", str(file)]
        self._require(["compose", "version"], "has no compose plug-in; install docker-compose-plugin")
        self._require(
            ["version", "--format", "{{.Server.Version}}"],
            "has no daemon that answers; start it, or check that this user may use it",
        )

    def run(self, *arguments: str, quiet: bool = False) -> int:
        """Run a Compose command on this terminal and return its exit code; a `quiet` one writes to stderr."""
        output = sys.stderr if quiet else None
        return subprocess.run([*self._command, *arguments], check=False, stdout=output).returncode

    def containers(self) -> dict[str, Container]:
        """The container of each service that was ever started, by service.

        Raises:
            StackError: docker reports an error, or does not answer.
        """
        done = _ask([*self._command, "ps", "--all", "--format", "json"])
        if done.returncode:
            raise StackError(f"docker compose says {_last_line(done.stderr)}; correct that")
        return containers_of(done.stdout)

    def _require(self, arguments: list[str], otherwise: str) -> None:
        done = _ask([self._docker, *arguments])
        if done.returncode:
            what, _, fix = otherwise.partition("; ")
            raise StackError(f"docker {what} ({_last_line(done.stderr)}); {fix}")


def containers_of(text: str) -> dict[str, Container]:
    """Read the output of `docker compose ps --format json`: JSON lines, or before version 2.21 one array."""
    if text.lstrip().startswith("["):
        found = msgspec.json.decode(text, type=list[Container])
    else:
        found = msgspec.json.Decoder(Container).decode_lines(text)
    return {container.service: container for container in found}


def compose_file(given: Path | None) -> Path:
    """The stack's file: the given one, or one in this folder, in a parent, or in this checkout.

    Raises:
        NotFoundError: there is no such file.
    """
    if given is not None:
        if not given.is_file():
            raise NotFoundError(f"{given} is not a file; give the path of Waybill's {FILE}")
        return given
    for folder in (Path.cwd(), *Path.cwd().parents, _CHECKOUT):
        if _content(folder / FILE).get("name") == PROJECT:
            return folder / FILE
    raise NotFoundError(
        f"no {FILE} of Waybill is here, and an installed wheel has none; get the sources of Waybill "
        f"{version('waybill-lineage')}, and run this in their folder or give the file with --file"
    )


def services_of(file: Path) -> list[str]:
    """The services that the file names."""
    services = _content(file).get("services")
    if not isinstance(services, dict):
        raise StackError(f"{file} names no services; give the path of Waybill's {FILE}")
    return [str(name) for name in services]


def _content(file: Path) -> dict[str, object]:
    """The content of a Compose file; empty if it is not one."""
    with contextlib.suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if isinstance(content, dict):
            return content
    return {}


def _ask(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=_DOCKER_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise StackError(f"docker did not answer within {_DOCKER_TIMEOUT_S:.0f} s; restart it") from None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing"])[-1].rstrip(".")
