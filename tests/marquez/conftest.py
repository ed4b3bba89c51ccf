"""What tests of deliveries begin with."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest
from contract_server import ContractServer
from delivering import HASTY, Site, Worker, event, numbers
from manual_clock import ManualClock

from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path


REAL_URL = os.environ.get("MARQUEZ_URL")


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
def site(journal: Journal, marquez: ContractServer) -> Site:
    return Site(journal, marquez)


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


@pytest.fixture
def url(marquez: ContractServer) -> str:
    """Where the server itself is, the stand-in or the real one, for what is read back from it."""
    return marquez.upstream or marquez.url


@pytest.fixture
def numbers_of() -> Callable[[list[dict[str, Any]], str], list[int]]:
    return numbers
