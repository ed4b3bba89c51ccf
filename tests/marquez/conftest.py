"""A backend that behaves as Marquez does, and a way to work a delivery without waiting for its back-off."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import pytest
from contract_server import ContractServer
from manual_clock import ManualClock

from waybill.marquez import Backend, Delivery
from waybill.marquez.summaries import SummaryRules
from waybill.transport import Journal, Kind
from waybill.transport.config import DETAIL_BACKLOG

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.transport.config import Detail

STEPS_MAX = 100_000


class Timeouts(TypedDict, total=False):
    """How long a backend may let the client wait."""

    connect_timeout_s: float
    answer_timeout_s: float


PATIENT: Timeouts = {"connect_timeout_s": 10.0, "answer_timeout_s": 10.0}
"""Where each answer counts: a busy machine must not lose one."""
HASTY: Timeouts = {"connect_timeout_s": 0.3, "answer_timeout_s": 0.3}
"""Where the backend lets the client wait; a busy machine may then lose an answer, too."""


REAL_URL = os.environ.get("MARQUEZ_URL")


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every test that speaks to Marquez speaks to the real one, too, where there is one."""
    if REAL_URL is not None and "marquez" in metafunc.fixturenames:
        metafunc.parametrize("marquez", ["contract", "real"], indirect=True)


@pytest.fixture
def journal(home: Path) -> Iterator[Journal]:
    """The journal of that home, on a clock that stands still until it is moved."""
    with contextlib.closing(Journal(home, clock=ManualClock())) as opened:
        yield opened


@pytest.fixture
def marquez(request: pytest.FixtureRequest) -> Iterator[ContractServer]:
    """A backend on loopback that answers as Marquez does, worse on request.

    With a real Marquez behind it, that one takes and judges each event that no fault keeps back.
    """
    is_real = getattr(request, "param", "contract") == "real"
    server = ContractServer(upstream=str(REAL_URL).rstrip("/") if is_real else None).start()
    yield server
    server.refuse()


@pytest.fixture
def worker(journal: Journal, marquez: ContractServer) -> Iterator[Worker]:
    worker = Worker(journal, marquez.url)
    yield worker
    worker.delivery.close()


@pytest.fixture
def hasty_worker(journal: Journal, marquez: ContractServer) -> Iterator[Worker]:
    worker = Worker(journal, marquez.url, **HASTY)
    yield worker
    worker.delivery.close()


@pytest.fixture
def new_worker() -> type[Worker]:
    """Makes a second worker over the same journal, as a runner does that starts again."""
    return Worker


@pytest.fixture
def keep(journal: Journal) -> Callable[..., int]:
    """Puts one event into the journal and returns its sequence number."""

    def keep(run: str, number: int = 0, /, **members: Any) -> int:  # noqa: ANN401 - members of a JSON object
        return journal.append(Kind.OPENLINEAGE, event(run, number, **members))

    return keep


REFUSED: Final = {
    "job": {"namespace": "tests", "name": "job", "facets": {"documentation": {"_producer": "tests"}}}
}
"""Members for which Marquez refuses an event: its facet names no schema. Admission knows no such rule."""


@pytest.fixture
def refused_members() -> dict[str, Any]:
    return REFUSED


@pytest.fixture
def event_of() -> Callable[..., bytes]:
    """Makes the bytes of one event."""
    return event


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


@pytest.fixture
def url(marquez: ContractServer) -> str:
    """Where the server itself is, the stand-in or the real one, for what is read back from it."""
    return marquez.upstream or marquez.url


def numbers(stored: list[dict[str, Any]], run: str) -> list[int]:
    """The numbers of one run's events in the order of their arrival."""
    return [event["number"] for event in stored if event.get("run", {}).get("runId") == run]


@pytest.fixture
def numbers_of() -> Callable[[list[dict[str, Any]], str], list[int]]:
    return numbers
