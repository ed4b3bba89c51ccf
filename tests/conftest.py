"""What every room's tests share: a clean environment, a home with settings, the seed of a random run."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from typing import TYPE_CHECKING

import hypothesis
import pytest

from waybill.transport import locks
from waybill.transport.config import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A busy machine is not the code's fault, so no example has a time limit of its own; pytest's still holds.
hypothesis.settings.register_profile("waybill", deadline=None, print_blob=True)
hypothesis.settings.load_profile("waybill")

FOREIGN = ("WAYBILL_", "OPENLINEAGE_", "MARQUEZ_")
RUNNER_ENDS_WITHIN_S = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="repeat the random choices of an earlier run")


def pytest_configure(config: pytest.Config) -> None:
    # Several test processes get the options of the first.
    if config.option.seed is None:
        config.option.seed = secrets.randbits(32)


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (repeat with --seed={config.option.seed})"


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
    """End the runners that tests have left: one whose backend is away would be there for an hour."""
    yield
    for lock in tmp_path_factory.getbasetemp().rglob("runner.lock"):
        end_runner_of(lock.parent)


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
def root(tmp_path: Path) -> Path:
    """A folder for a layout of this test's own."""
    return tmp_path / "root"


@pytest.fixture
def settings(home: Path, root: Path, tmp_path: Path) -> Settings:
    """Settings for that home and root, with the layout on and no runner of their own accord."""
    given = {"home": home, "root": root, "system_name": "tests", "provenance_enabled": True, "runner": "none"}
    return Settings.load(given, origin="tests", env={}, cwd=tmp_path)
