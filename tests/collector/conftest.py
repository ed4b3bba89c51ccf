"""Collectors for tests: one of a test's own, and one that a module's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract_server import ContractServer
from served import PROGRAM, Collector, without_runner

Start = Callable[..., Collector]


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Start a collector of this test's own."""
    started: list[Collector] = []

    def begin(*options: str, home: Path = home, program: tuple[str, ...] = PROGRAM) -> Collector:
        started.append(Collector(home, *options, program=program))
        return started[-1]

    yield begin
    for collector in started:
        collector.process.kill()
        collector.process.communicate()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """One collector for all tests of a module that do not mind each other; without a runner."""
    with without_runner(tmp_path_factory.mktemp("shared") / "home") as collector:
        yield collector


@pytest.fixture
def marquez() -> Iterator[ContractServer]:
    """A server that answers like Marquez."""
    server = ContractServer().start()
    yield server
    server.refuse()
