"""A home is open to its user only, or to the group if the setting says so."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from waybill.transport import Journal, Kind, Settings, locks
from waybill.transport.config import agree
from waybill.transport.home import Home


@pytest.fixture(params=[0o000, 0o022, 0o077])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(home: Path) -> dict[str, int]:
    """The permissions of a home and of everything in it."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*"))}


def use(settings: Settings) -> dict[str, int]:
    """Make every file of a home except the runner's log, and return the modes."""
    home = Home.open(settings)
    home.append(Kind.OPENLINEAGE, b"{}", "")
    found = modes(settings.home)
    home.close()
    assert {"journal.db", "journal.db-wal", "journal.db-shm", "journal.lock", "runner.lock"} <= set(found)
    return found


def settings_of(home: Path, **given: object) -> Settings:
    usual = {"home": home, "root": home.parent / "root", "durability": "process", "runner": "none"}
    return Settings.load({**usual, **given}, env={}, cwd=home.parent)


@pytest.mark.usefixtures("_umask")
def test_only_its_user_can_open_a_home_whatever_the_umask(home: Path) -> None:
    found = use(settings_of(home))
    assert found.pop("home") == 0o700
    assert set(found.values()) == {0o600}


@pytest.mark.usefixtures("_umask")
def test_the_group_can_open_a_home_on_request(home: Path) -> None:
    found = use(settings_of(home, home_mode="group"))
    assert found.pop("home") == 0o2770
    assert set(found.values()) == {0o660}
    journal = Journal(home)
    agree(journal, settings_of(home))
    assert modes(home)["home"] == 0o2770, "the home keeps what was asked for"
    agree(journal, settings_of(home, home_mode="private"))
    assert modes(home)["home"] == 0o700
    journal.close()


def test_only_its_user_can_read_the_log_of_the_runner(home: Path, end_runner: Callable[[Path], None]) -> None:
    opened = Home.open(settings_of(home, runner="child"))
    assert modes(home)["runner.log"] == 0o600
    end_runner(home)
    opened.close()


def test_a_home_that_was_open_to_others_is_mended_and_that_is_told_once(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = home / "provenance"
    root.mkdir(parents=True)
    Journal(home).append(Kind.OPENLINEAGE, b"kept")
    for path in (home, *home.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for _ in range(2):
        journal = Journal(home)
        agree(journal, settings_of(home, root=home))
        journal.close()
    found = modes(home)
    assert found.pop("provenance") == 0o755, "a root is for its readers"
    assert found.pop("home") == 0o700
    assert set(found.values()) == {0o600}
    told = [one for one in caplog.records if "was open to other users" in one.getMessage()]
    assert len(told) == 1
    assert told[0].levelno == logging.WARNING


def test_a_folder_that_everybody_uses_keeps_its_mode(tmp_path: Path) -> None:
    home = tmp_path / "everybody"
    home.mkdir()
    home.chmod(0o1777)
    journal = Journal(home)
    agree(journal, settings_of(home))
    found = modes(home)
    assert found.pop("everybody") == 0o1777
    assert set(found.values()) == {0o600}
    journal.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_hold_up_a_pipeline_by_its_locks(home: Path) -> None:
    Journal(home).close()
    held = locks.take(home)
    pid = os.fork()
    if pid == 0:
        os.chdir(home)
        os.setuid(65534)
        got_in = 0
        for name in ("journal.lock", "runner.lock"):
            try:
                fcntl.flock(os.open(name, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)
                got_in = 1
            except OSError:
                pass
        os._exit(got_in)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert held
    held.release()
