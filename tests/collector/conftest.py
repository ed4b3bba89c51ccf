"""Collectors for tests: one of a test's own, and one that a module's tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import chromium
from contract_server import ContractServer
from inside import Inside
from page_sample import fill
from served import Collector, without_runner

from waybill.collector import Keys, Role
from waybill.transport import Journal

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Start = Callable[..., Collector]
Open = Callable[..., Inside]


@pytest.fixture
def start(home: Path) -> Iterator[Start]:
    """Start a collector of this test's own."""
    started: list[Collector] = []

    def begin(*options: str, home: Path = home) -> Collector:
        started.append(Collector(home, *options))
        return started[-1]

    yield begin
    for collector in started:
        collector.process.kill()
        collector.process.communicate()


@pytest.fixture
def inside(home: Path) -> Iterator[Open]:
    """Open a collector of this test's own, within this process."""
    opened: list[Inside] = []

    def begin(*, home: Path = home, **given: Any) -> Inside:  # noqa: ANN401 - as `Inside` has it
        opened.append(Inside(home, **given))
        return opened[-1]

    yield begin
    for collector in opened:
        collector.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """One collector within this process for all tests of a module that do not mind each other."""
    home = tmp_path_factory.mktemp("shared") / "home"
    with contextlib.closing(
        Inside(home, provenance_enabled=True, provenance_annotations_allowed="note,k")
    ) as one:
        yield one


@pytest.fixture
def marquez() -> Iterator[ContractServer]:
    """A server that answers like Marquez."""
    server = ContractServer().start()
    yield server
    server.refuse()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The machine's Chromium, one for all tests of a module."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def looked_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """A collector whose home has something for each view of the page."""
    home = tmp_path_factory.mktemp("page") / "home"
    options = ("--provenance-enabled", "--provenance-annotations-allowed", "customer")
    with without_runner(home, *options) as collector:
        fill(collector)
        yield collector


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A key of each role, and the home that has them."""
    journal = Journal(tmp_path_factory.mktemp("guarded") / "home")
    made = {role.value: Keys(journal).add(role.value, [role]) for role in Role}
    made["home"] = str(journal.home)
    journal.close()
    return made


@pytest.fixture(scope="module")
def guarded(keys: dict[str, str]) -> Iterator[Inside]:
    """A collector that has these keys."""
    with contextlib.closing(Inside(Path(keys["home"]), provenance_enabled=True)) as one:
        yield one
