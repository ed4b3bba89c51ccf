"""`waybill dead-letters`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from contract_server import ContractServer

from waybill.marquez import dead_letters
from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from conftest import Run

BODIES = [
    b'{"eventType":"START","eventTime":"2026-01-01T00:00:00Z","run":{"runId":"%d"},"text":"\xc3\xa9",'
    b'"job":{"namespace":"tests","name":"job"},"producer":"https://example.com/tests",'
    b'"schemaURL":"https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"}' % number
    for number in range(3)
]


@pytest.fixture
def backend() -> Iterator[ContractServer]:
    """A Marquez that refuses every event."""
    backend = ContractServer(fault="422").start()
    yield backend
    backend.refuse()


def took(backend: ContractServer) -> list[bytes]:
    return [received.body for received in backend.received if received.stored]


@pytest.fixture
def refused(settings: Settings, backend: ContractServer) -> Settings:
    """A home whose three events were all refused."""
    journal = Journal(settings.home)
    journal.append_many((Kind.OPENLINEAGE, body, "") for body in BODIES)
    journal.close()
    settings = settings.with_values({"marquez_url": backend.url, "provenance_enabled": False}, "tests")
    assert flush(settings, timeout_s=60).problems == {}
    return settings


def left(settings: Settings) -> list[int]:
    journal = Journal(settings.home)
    try:
        return [letter.seq for letter in dead_letters(journal)]
    finally:
        journal.close()


def test_what_the_backend_accepts_now_is_no_longer_a_dead_letter(
    called: Run, refused: Settings, backend: ContractServer
) -> None:
    backend.fault = None
    done = called("dead-letters", "retry", "1", "3", "--home", refused.home)
    assert (done.returncode, done.stdout) == (0, "2 of 2 succeeded\n")
    assert sorted(took(backend)) == [BODIES[0], BODIES[2]]
    assert left(refused) == [2]
    assert called("dead-letters", "retry", "--all", "--home", refused.home).returncode == 0
    assert left(refused) == []


def test_what_is_refused_again_or_cannot_be_sent_is_named_and_exit_code_1(
    called: Run, refused: Settings, backend: ContractServer
) -> None:
    done = called("dead-letters", "retry", "2", "--home", refused.home)
    assert (done.returncode, done.stdout) == (1, "0 of 1 succeeded\n")
    assert "2 of marquez: failed again: " in done.stderr
    backend.refuse()
    done = called("dead-letters", "retry", "2", "--home", refused.home)
    assert done.returncode == 1
    assert "2 of marquez: not tried yet; " in done.stderr
    assert "does not answer" in done.stderr
    assert left(refused) == [1, 2, 3]
