"""A home with a backend that answers as Marquez does, and deliveries that no test waits for."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from manual_clock import ManualClock

from waybill.marquez import Backend, Delivery
from waybill.marquez.summaries import SummaryRules
from waybill.transport import Journal, Kind
from waybill.transport.config import DETAIL_BACKLOG, Detail

if TYPE_CHECKING:
    from contract_server import ContractServer

STEPS_MAX = 100_000


class Timeouts(TypedDict, total=False):
    """How long a backend may let the client wait."""

    connect_timeout_s: float
    answer_timeout_s: float


PATIENT: Timeouts = {"connect_timeout_s": 10.0, "answer_timeout_s": 10.0}
"""Where each answer counts: a busy machine must not lose one."""
HASTY: Timeouts = {"connect_timeout_s": 0.3, "answer_timeout_s": 0.3}
"""Where the backend lets the client wait; a busy machine may then lose an answer, too."""


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
        **timeouts_s: Unpack[Timeouts],
    ) -> None:
        assert isinstance(journal.clock, ManualClock)
        self.clock = journal.clock
        self.journal = journal
        backend = Backend(url, api_key, **(timeouts_s or PATIENT))
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


def numbers(stored: list[dict[str, Any]], run: str) -> list[int]:
    """The numbers of one run's events in the order of their arrival."""
    return [event["number"] for event in stored if event.get("run", {}).get("runId") == run]


class Site:
    """A journal and the backend that its events go to."""

    def __init__(self, journal: Journal, marquez: ContractServer) -> None:
        assert isinstance(journal.clock, ManualClock)
        self.journal = journal
        self.marquez = marquez
        self.clock = journal.clock
        self.url = marquez.upstream or marquez.url
        """Where the server itself is, the stand-in or the real one, for what is read back from it."""

    def keep(self, run: str, number: int = 0, /, **members: Any) -> int:  # noqa: ANN401 - as above
        """Put one event into the journal and return its sequence number."""
        return self.journal.append(Kind.OPENLINEAGE, event(run, number, **members))

    def worker(self, api_key: str | None = None, **given: Any) -> Worker:  # noqa: ANN401 - those of a worker
        """A delivery of its own over the journal, as a runner has one that starts anew."""
        return Worker(self.journal, self.marquez.url, api_key, **given)

    def numbers(self, run: str) -> list[int]:
        """The numbers of one run's events as the backend has stored them."""
        return numbers(self.marquez.stored, run)
