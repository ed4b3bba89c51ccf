"""Prometheus's own programs, as Debian packages them, on free ports of this machine."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "monitoring"
PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
}


def path_of(program: str) -> str:
    """Where a program is; the test is skipped if it is not installed."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(
            f"{program} is not installed (Debian's package {PACKAGES[program]}): nothing can judge this"
        )
    return path


def said_by(program: str, *arguments: str | Path) -> str:
    """What a program says, if it is content."""
    done = subprocess.run(
        [path_of(program), *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Server:
    """A program that answers over HTTP."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        command = [path_of(program), *arguments, f"--web.listen-address={self.address}"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._is_ready, 60)

    def get(self, path: str, **params: str) -> Any:  # noqa: ANN401 - any JSON value
        url = f"http://{self.address}{path}?{urllib.parse.urlencode(params)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)

    def post(self, path: str, body: object) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - as above
            assert answer.status == 200

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def _is_ready(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=5),
        ):
            return True
        return False


class Prometheus(Server):
    """A Prometheus that asks collectors for their metrics every second, and evaluates our rules."""

    def __init__(self, folder: Path, *collectors: str, key: str = "") -> None:
        scraped: dict[str, Any] = {"job_name": "waybill", "static_configs": [{"targets": list(collectors)}]}
        if key:
            scraped["authorization"] = {"credentials": key}
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        rules = [str(MONITORING / "rules.yml")]
        config = folder / "prometheus.json"  # JSON is YAML
        config.write_text(json.dumps({"global": every, "rule_files": rules, "scrape_configs": [scraped]}))
        super().__init__("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}")

    def ask(self, expression: str, at_s: float | None = None) -> list[dict[str, Any]]:
        """The samples of an expression, now or at an instant in epoch seconds."""
        at = {} if at_s is None else {"time": str(at_s)}
        samples: list[dict[str, Any]] = self.get("/api/v1/query", query=expression, **at)["data"]["result"]
        return samples


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    try:
        yield server
    finally:
        server.stop()
