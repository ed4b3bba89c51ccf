"""A home with a backend that answers as Marquez does, and deliveries that no test waits for."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import requests
from manual_clock import ManualClock

from waybill.marquez import Backend, Delivery
from waybill.marquez.summaries import SummaryRules
from waybill.transport import Journal, Kind, Settings, Tracker
from waybill.transport.config import DETAIL_BACKLOG, Detail

if TYPE_CHECKING:
    from contract_server import ContractServer

STEPS_MAX = 100_000


HASTY_S = 0.3
"""How long a client waits for a backend that lets it wait; a busy machine may then lose an answer, too."""


class Worker:
    """Works a delivery as the runner does, on a clock that it moves instead of waiting."""

    def __init__(
        self,
        journal: Journal,
        url: str,
        api_key: str | None = None,
        *,
        connections: int = 1,
        draws: bool = False,
        detail: Detail = "every",
        backlog: int = DETAIL_BACKLOG,
        timeout_s: float = 30.0,
    ) -> None:
        assert isinstance(journal.clock, ManualClock)
        self.clock = journal.clock
        self.journal = journal
        backend = Backend(url, api_key, connect_timeout_s=timeout_s, answer_timeout_s=timeout_s)
        self.delivery = Delivery(
            journal,
            backend,
            connections=connections,
            draws=draws,
            summaries=SummaryRules(detail=detail, public_url="http://collector:8090", backlog=backlog),
            rng=Random(1),  # noqa: S311 - jitter
        )
        self.problem: str | None = None

    def run(self, *, until: Callable[[], bool] = lambda: False, at_most_s: float = 86_400.0) -> None:
        """Step until nothing is left to wait for, or `until`, or so many seconds of the moved clock."""
        deadline_s = self.clock.monotonic_s() + at_most_s
        for _ in range(STEPS_MAX):
            if until() or self.clock.monotonic_s() > deadline_s:
                return
            step = self.delivery.step()
            self.problem = step.problem
            if step.applied:
                continue
            if step.retry_s is None:
                return
            self.clock.move(step.retry_s)
        raise AssertionError(f"still not done after {STEPS_MAX} steps: {self.problem}")


def event(run: str, number: int = 0, /, **members: Any) -> bytes:  # noqa: ANN401 - members of a JSON object
    """An OpenLineage run event; `number` tells the events of a run apart; one that is ... is left out."""
    content = {
        "eventType": "RUNNING",
        "eventTime": "2026-01-01T00:00:00+00:00",
        "run": {"runId": run, "facets": {}},
        "job": {"namespace": "tests", "name": "job"},
        "producer": "https://example.com/tests",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "number": number,
    } | members
    return json.dumps({name: value for name, value in content.items() if value is not ...}).encode()


class Site:
    """A journal and the backend that its events go to."""

    def __init__(self, journal: Journal, marquez: ContractServer) -> None:
        assert isinstance(journal.clock, ManualClock)
        self.journal = journal
        self.marquez = marquez
        self.clock = journal.clock
        self.url = marquez.upstream or marquez.url
        """Where the server itself is, the stand-in or the real one, for what is read back from it."""
        self._workers: list[Worker] = []

    def keep(self, run: str, number: int = 0, /, **members: Any) -> int:  # noqa: ANN401 - as above
        """Put one event into the journal and return its sequence number."""
        return self.journal.append(Kind.OPENLINEAGE, event(run, number, **members))

    def worker(self, api_key: str | None = None, *, url: str | None = None, **given: Any) -> Worker:  # noqa: ANN401 - those of a worker
        """A delivery of its own over the journal, as a runner has one that starts anew."""
        self._workers.append(Worker(self.journal, url or self.marquez.url, api_key, **given))
        return self._workers[-1]

    def deliver(self, *, url: str | None = None, at_most_s: float = 3_600.0, **given: Any) -> Worker:  # noqa: ANN401 - as above
        """Deliver all that is in the journal, with a delivery of its own."""
        worker = self.worker(url=url, **given)
        worker.run(at_most_s=at_most_s)
        return worker

    def numbers(self, run: str) -> list[int]:
        """The numbers of one run's events as the backend has stored them."""
        return [one["number"] for one in self.marquez.stored if one.get("run", {}).get("runId") == run]

    def tracker(self, system: str) -> Tracker:
        """What notes the files of a system in the same home."""
        given = {"home": self.journal.home, "system_name": system, "runner": "none"}
        return Tracker(settings=Settings.load(given, env={}))

    def close(self) -> None:
        """Close all deliveries."""
        for worker in self._workers:
            worker.delivery.close()


def facet(name: str, **members: object) -> dict[str, object]:
    """A facet of OpenLineage's own."""
    schema = f"https://openlineage.io/spec/facets/1-0-1/{name}.json#/$defs/{name}"
    return {"_producer": "https://example.com/tests", "_schemaURL": schema, **members}


def shown(url: str, kind: str, namespace: str, name: str) -> dict[str, Any]:
    """What Marquez knows of one of its ``jobs`` or ``datasets``."""
    where, called = (quote(one, safe="") for one in (namespace, name))
    answer = requests.get(f"{url}/api/v1/namespaces/{where}/{kind}/{called}", timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def drawn(url: str, kind: str, namespace: str, name: str) -> list[dict[str, Any]]:
    """The nodes of the graph that Marquez draws around a ``job`` or a ``dataset``."""
    query = {"nodeId": f"{kind}:{namespace}:{name}", "depth": "20"}
    answer = requests.get(f"{url}/api/v1/lineage", params=query, timeout=60)
    assert answer.status_code == 200, answer.text
    graph: list[dict[str, Any]] = answer.json()["graph"]
    return graph
