"""`waybill reconcile`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from contract_server import ContractServer

from waybill.transport import Journal, Settings, Tracker, flush

if TYPE_CHECKING:
    from conftest import Run


@pytest.fixture
def new_marquez() -> Iterator[Callable[[], str]]:
    """Starts an empty server that behaves like Marquez, and returns its address."""
    servers = []

    def start() -> str:
        servers.append(ContractServer().start())
        return servers[-1].url

    yield start
    for server in servers:
        server.refuse()


def test_what_marquez_lost_is_listed_and_repaired(
    called: Run, settings: Settings, new_marquez: Callable[[], str]
) -> None:
    with Tracker(settings=settings) as tracker, tracker.file("orders.csv", data_source="sftp-in") as file:
        file.egress("warehouse")
    first, second = new_marquez(), new_marquez()
    settings = settings.with_values({"marquez_url": first, "provenance_enabled": False}, "tests")
    assert flush(settings, timeout_s=60).problems == {}
    done = called("reconcile", "--home", settings.home)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == ("0 of 2 delivered run events are missing\n0 of 1 jobs of the graph are missing\n")

    elsewhere = ("--home", settings.home, "--marquez-url", second)
    done = called("reconcile", *elsewhere, "--json")
    assert done.returncode == 1
    missing = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one.get("run_id"), one.get("event_type"), one.get("name")) for one in missing] == [
        (file.did, "START", None),
        (file.did, "COMPLETE", None),
        (None, None, "(to warehouse) · sftp-in"),
    ]
    assert done.stderr.endswith("1 of 1 jobs of the graph are missing\n")
    done = called("reconcile", *elsewhere, "--repair")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("3 were sent again\n")
    assert called("reconcile", *elsewhere, "--since", "1h").returncode == 0


def test_a_home_with_nothing_in_it_has_nothing_to_compare(
    called: Run, home: Path, new_marquez: Callable[[], str]
) -> None:
    Journal(home).close()
    done = called("reconcile", "--home", home, "--marquez-url", new_marquez())
    assert (done.returncode, done.stdout) == (0, "")
    assert "0 of 0 delivered run events are missing" in done.stderr
