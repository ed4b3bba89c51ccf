"""What the stack serves on this machine, and whether each of it answers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_TIMEOUT_S: Final = 3.0
_OK: Final = 200
_SAMPLE: Final = re.compile(r'waybill_projection_(behind|age_seconds)\{projection="([^"]*)"\} (\S+)')


class Service(NamedTuple):
    """One service of the stack that listens on this machine.

    Attributes:
        name: what the compose file calls it.
        says: what it is.
        variable: the environment's variable that gives its port.
        port: the port without that variable.
        path: what it answers with 200 when it is well.
    """

    name: str
    says: str
    variable: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://localhost:{os.environ.get(self.variable) or self.port}"


COLLECTOR: Final = Service("collector", "Waybill's collector", "WAYBILL_PORT", 8090, "/health/ready")
MARQUEZ: Final = Service("marquez", "Marquez's API", "MARQUEZ_PORT", 5000, "/api/v1/namespaces?limit=1")
PAGE: Final = Service("page", "Marquez's page", "MARQUEZ_PAGE_PORT", 3000, "/healthcheck")
PROMETHEUS: Final = Service("prometheus", "Prometheus", "PROMETHEUS_PORT", 9090, "/-/ready")
GRAFANA: Final = Service("grafana", "Grafana", "GRAFANA_PORT", 3001, "/api/health")

SERVICES: Final = (COLLECTOR, MARQUEZ, PAGE, PROMETHEUS, GRAFANA)


class Heard(NamedTuple):
    """What came back from a URL.

    Attributes:
        status: the HTTP status; None without an answer.
        text: the body, or why there is no answer.
    """

    status: int | None
    text: str

    @property
    def is_well(self) -> bool:
        """Whether it answered as it should."""
        return self.status == _OK

    @property
    def says(self) -> str:
        """What is wrong, in a few words."""
        return self.text if self.status is None else f"it answers {self.status}"


def hear(url: str, api_key: str | None = None) -> Heard:
    """Ask a URL of this machine; no proxy of the environment is between."""
    import requests

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.get(url, headers=headers, timeout=_TIMEOUT_S, allow_redirects=False)
        except requests.Timeout:
            return Heard(None, f"no answer within {_TIMEOUT_S:.0f} s")
        except requests.RequestException:
            return Heard(None, "nothing answers there")
        return Heard(answer.status_code, answer.text)


class Waiting(NamedTuple):
    """What one projection of a collector has not dealt with.

    Attributes:
        entries: how many.
        age_s: how old the oldest is, in seconds.
    """

    entries: int
    age_s: float


def waiting_of(metrics: str) -> Mapping[str, Waiting]:
    """By projection, what waits, as a collector's `/metrics` says it."""
    found: dict[str, dict[str, float]] = {}
    for what, name, value in _SAMPLE.findall(metrics):
        found.setdefault(name, {})[what] = float(value)
    return {
        name: Waiting(int(figures.get("behind", 0)), figures.get("age_seconds", 0.0))
        for name, figures in sorted(found.items())
    }
