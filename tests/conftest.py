"""What every room's tests share: a clean environment, a home with settings, the seed of a random run."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import signal
import time
from typing import TYPE_CHECKING

import hypothesis
import pytest

from waybill.transport import Journal, locks
from waybill.transport.config import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

# A busy machine is not the code's fault, so no example has a time limit of its own; pytest's still holds.
# No database of examples: an earlier run must not change what this one tries.
for profile, examples in (("waybill", 30), ("explore", 100)):
    hypothesis.settings.register_profile(
        profile,
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
# What the folders' own conftests import may have settings of its own, which begin with these.
hypothesis.settings.load_profile("waybill")

FOREIGN = ("WAYBILL_", "OPENLINEAGE_", "MARQUEZ_")
RUNNER_ENDS_WITHIN_S = 20.0
SEED = 352_369_312
"""Every run makes the same random choices, except those of `make explore`, which chooses new seeds."""
REPEAT = "repeat"
EMPTY_TURNS = "has nothing to do and asks again at once"
"""What the runner logs of a projection that turns without waiting."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=SEED, help="what all random choices start from")


def pytest_configure(config: pytest.Config) -> None:
    # Hypothesis reads this after us.
    config.option.hypothesis_seed = str(config.option.seed)
    # The same seed tries the same examples each time: only a new one is worth many.
    hypothesis.settings.load_profile("waybill" if config.option.seed == SEED else "explore")


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the short tests that depend on the seed, so that `make explore` can select them."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("exhaustive"):
            continue
        if "seed" in item.fixturenames or getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.random)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note how a random test that failed is repeated; the report may have to travel to another process."""
    report = yield
    if report.failed and item.get_closest_marker("random"):
        command = (
            f".venv/bin/python -m pytest -m '' --seed={item.config.option.seed} {shlex.quote(item.nodeid)}"
        )
        report.user_properties.append((REPEAT, command))
        notes = getattr(call.excinfo and call.excinfo.value, "__notes__", [])
        blobs = [blob for note in notes for blob in re.findall(r"@reproduce_failure\(.*\)", note)]
        report.user_properties += [(REPEAT, blob) for blob in blobs]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show a command for each random test that failed, and Hypothesis's own way to repeat it."""
    reports = terminalreporter.getreports("failed") + terminalreporter.getreports("error")
    # A module that cannot be collected has a report without properties.
    properties = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    lines = [str(text) for name, text in properties if name == REPEAT]
    if lines:
        terminalreporter.section("to repeat a failure")
        for line in lines:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """What random choices start from; a test that fails can be repeated with it."""
    return int(pytestconfig.option.seed)


@pytest.fixture(scope="session", autouse=True)
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the developer's own settings out of the tests, and the tests out of the developer's own home."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(FOREIGN):
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_runner_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """End the runners that tests have left: one whose backend is away would be there for an hour.

    No projection of one may have turned without work.
    """
    yield
    folder = tmp_path_factory.getbasetemp()
    for lock in folder.rglob("runner.lock"):
        end_runner_of(lock.parent)
    assert [log for log in folder.rglob("runner.log") if EMPTY_TURNS in log.read_text(errors="replace")] == []


class _EmptyTurns(logging.Handler):
    """Collects what runners of this process log of projections that turn without work."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if EMPTY_TURNS in record.getMessage():
            self.lines.append(record.getMessage())


@pytest.fixture(autouse=True)
def empty_turns() -> Iterator[list[str]]:
    """The projections of this test that turn without work; a test that wants such a one clears this."""
    handler, log = _EmptyTurns(), logging.getLogger("waybill.runner")
    log.addHandler(handler)
    yield handler.lines
    log.removeHandler(handler)
    assert handler.lines == []


@pytest.fixture
def end_runner() -> Callable[[Path], None]:
    """Ends the runner that an emitter has started for a home, also one that is still on its way up."""

    def end(home: Path) -> None:
        assert end_runner_of(home), "there is no runner to end"

    return end


def end_runner_of(home: Path) -> bool:
    """End a home's runner and wait for that; False if it has none."""
    deadline_s = time.monotonic() + RUNNER_ENDS_WITHIN_S
    found = False
    while locks.is_held(home):
        pid = locks.holder(home)
        if pid == os.getpid():  # a test that failed has not released the lease that it took
            return found
        if pid is not None:  # else it is on its way up, and has not signed yet
            found = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        assert time.monotonic() < deadline_s, f"the runner of {home} does not end"
        time.sleep(0.02)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder for a journal of this test's own."""
    return tmp_path / "home"


@pytest.fixture
def journal(home: Path) -> Iterator[Journal]:
    """The journal of that home."""
    with contextlib.closing(Journal(home)) as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder for a layout of this test's own."""
    return tmp_path / "root"


@pytest.fixture
def settings(home: Path, root: Path, tmp_path: Path) -> Settings:
    """Settings for that home and root, with the layout on and no runner of their own accord."""
    given = {"home": home, "root": root, "system_name": "tests", "provenance_enabled": True, "runner": "none"}
    return Settings.load(given, origin="tests", env={}, cwd=tmp_path)
