"""The services of the local stack, and requests to them."""

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
        name: its name in the compose file.
        variable: the environment variable that sets its port.
        port: the port without that variable.
        path: the path at which it answers 200 while it is healthy.
    """

    name: str
    says: str
    variable: str
    port: int
    path: str

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://localhost:{os.environ.get(self.variable) or self.port}"


COLLECTOR: Final = Service("collector", "Waybill's collector", "WAYBILL_PORT", 8090, "/health/ready")
MARQUEZ: Final = Service("marquez", "Marquez's API", "MARQUEZ_PORT", 5000, "/api/v1/namespaces?limit=1")
PAGE: Final = Service("page", "Marquez's page", "MARQUEZ_PAGE_PORT", 3000, "/healthcheck")
PROMETHEUS: Final = Service("prometheus", "Prometheus", "PROMETHEUS_PORT", 9090, "/-/ready")
ALERTMANAGER: Final = Service("alertmanager", "Alertmanager", "ALERTMANAGER_PORT", 9093, "/-/ready")
GRAFANA: Final = Service("grafana", "Grafana", "GRAFANA_PORT", 3001, "/api/health")

SERVICES: Final = (COLLECTOR, MARQUEZ, PAGE, PROMETHEUS, ALERTMANAGER, GRAFANA)


class Answer(NamedTuple):
    """A URL's answer: its status and body, or None and the reason why there is no answer."""

    status: int | None
    text: str

    @property
    def is_well(self) -> bool:
        """Whether the status is 200."""
        return self.status == _OK

    @property
    def says(self) -> str:
        """The problem in a few words."""
        return self.text if self.status is None else f"it answers {self.status}"


def ask(url: str, api_key: str | None = None) -> Answer:
    """Get a URL, ignoring any proxy that the environment names."""
    import requests

    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    with requests.Session() as session:
        session.trust_env = False
        try:
            answer = session.get(url, headers=headers, timeout=_TIMEOUT_S, allow_redirects=False)
        except requests.Timeout:
            return Answer(None, f"no answer within {_TIMEOUT_S:.0f} s")
        except requests.RequestException:
            return Answer(None, "nothing answers there")
        return Answer(answer.status_code, answer.text)


class Waiting(NamedTuple):
    """The entries that wait for one projection of a collector: their number, and the age of the oldest."""

    entries: int
    age_s: float


def waiting_by_projection(metrics: str) -> Mapping[str, Waiting]:
    """The waiting entries of each projection, read from a collector's `/metrics`."""
    found: dict[str, dict[str, float]] = {}
    for what, name, value in _SAMPLE.findall(metrics):
        found.setdefault(name, {})[what] = float(value)
    return {
        name: Waiting(int(figures.get("behind", 0)), figures.get("age_seconds", 0.0))
        for name, figures in sorted(found.items())
    }
