"""What tests of deliveries begin with."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_server import ContractServer
from delivering import Site, Worker
from manual_clock import ManualClock

from waybill.transport import Journal

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
def site(journal: Journal, marquez: ContractServer) -> Iterator[Site]:
    with contextlib.closing(Site(journal, marquez)) as site:
        yield site


@pytest.fixture
def worker(site: Site) -> Worker:
    return site.worker()


@pytest.fixture
def system() -> str:
    """A namespace that no other test uses."""
    return f"tests-{uuid.uuid4()}"


@pytest.fixture
def url(marquez: ContractServer) -> str:
    """Where the server itself is, the stand-in or the real one, for what is read back from it."""
    return marquez.upstream or marquez.url
