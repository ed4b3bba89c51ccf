"""The fallback for a home that cannot be used."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import events
import pytest
from forking import in_fork
from waiting import at_once

from waybill.transport import Journal, JournalError, Settings, flush, locks
from waybill.transport.fallback import fallback_of, waiting_in_fallback
from waybill.transport.home import Home

NOBODY = 65534


@pytest.fixture
def own() -> Iterator[Path]:
    """A folder that nobody else can replace, unlike tmp_path, which is below a world-writable folder."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=".waybill-tests-", dir=Path.home()))
    except (OSError, RuntimeError):
        pytest.skip("this user has no home folder")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A home that cannot be made, because its parent is a file."""
    (tmp_path / "mount").write_text("")
    return tmp_path / "mount" / "home"


def unblock(home: Path) -> None:
    home.parent.unlink()


def settings_of(home: Path, fallback: Path, **given: object) -> Settings:
    values = {"home": home, "runner": "none", "fallback_home": fallback, "system_name": "tests", **given}
    return Settings.load(values, env={}, cwd=Path("/"))


def event(number: int) -> bytes:
    return events.event(f"01a1fd6a-aa2c-772e-b9bc-{number:012}", facets={"secret": {"password": "a"}})


def emit(settings: Settings, *numbers: int) -> Home:
    home = Home.open(settings)
    for number in numbers:
        home.emit(event(number))
    home.close()
    return home


def kept(home: Path) -> list[bytes]:
    return [entry.body for entry in Journal(home).read(0)]


def test_events_of_a_home_that_cannot_be_used_are_kept_and_adopted_once_by_the_next_program(
    blocked: Path, own: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_of(blocked, own / "fallback")
    emit(settings, 1, 2)
    emit(settings, 3)
    (warning,) = [record.message for record in caplog.records if "events are kept in" in record.message]
    assert str(own / "fallback") in warning
    assert "not filed or delivered" in warning
    assert waiting_in_fallback(settings) == 3
    unblock(blocked)
    emit(settings, 4)
    emit(settings, 5)
    assert kept(blocked) == [event(number) for number in (1, 2, 3, 4, 5)]
    assert waiting_in_fallback(settings) == 0


def test_events_of_a_home_whose_journal_is_damaged_wait_for_the_next_one(home: Path, own: Path) -> None:
    settings = settings_of(home, own / "fallback")
    emit(settings, 1)
    for path in home.glob("journal.db*"):
        path.unlink()
    (home / "journal.db").write_bytes(b"nonsense" * 512)
    emit(settings, 2)
    with pytest.raises(JournalError, match="is damaged or is no journal"):
        Journal(home)
    for path in home.glob("journal.*"):
        path.unlink()
    emit(settings, 3)
    assert kept(home) == [event(2), event(3)]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_why_a_home_that_this_user_may_not_write_cannot_be_used_is_told_in_words_with_its_path_once() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = Path(folder, "home")
        Path(folder, "opened").mkdir(0o755)
        os.seteuid(NOBODY)
        try:
            for path, what in ((home, f"the home {home} cannot be used"), (Path(folder, "opened"), "locked")):
                with pytest.raises(JournalError, match=f"{what}.*permission denied") as raised:
                    Journal(path)
                assert str(raised.value).count(folder) == 1
                assert "Errno" not in str(raised.value)
        finally:
            os.seteuid(0)


def test_by_default_it_is_in_the_users_own_state_directory(
    blocked: Path, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(own))
    settings = Settings.load({"home": blocked, "system_name": "tests"}, env={}, cwd=Path("/"))
    emit(settings, 1)
    assert waiting_in_fallback(settings) == 1
    assert settings.fallback_home == own / "waybill" / "fallback"


def test_only_its_user_can_open_what_is_in_it_whatever_the_umask(blocked: Path, own: Path) -> None:
    settings = settings_of(blocked, own / "state" / "fallback", home_mode="group")
    before = os.umask(0)
    try:
        emit(settings, 1)
    finally:
        os.umask(before)
    made = [own / "state", *(own / "state").rglob("*")]
    assert len(made) > 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made if path.is_file()} == {0o600}


def linked(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")


def owned_by_another(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the system's administrator can give files away")
    os.chown(folder, NOBODY, NOBODY)


HOSTILE: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a link": (lambda base, _: linked(base), "is a link"),
    "a link for this home": (lambda _, folder: linked(folder), "is a link"),
    "another user's": (lambda base, _: owned_by_another(base), "belongs to another user"),
    "another user's for this home": (lambda _, folder: owned_by_another(folder), "belongs to another user"),
    "in another user's": (lambda base, _: owned_by_another(base.parent), "belongs to another user"),
    "open to the group": (lambda base, _: base.chmod(0o770), "open to other users"),
    "open to the group for this home": (lambda _, folder: folder.chmod(0o770), "open to other users"),
    "readable by all": (lambda base, _: base.chmod(0o755), "open to other users"),
    "in the group's": (lambda base, _: base.parent.chmod(0o770), "others can write to"),
    "in a shared one": (lambda base, _: base.parent.chmod(0o1777), "others can write to"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_one_that_others_could_read_or_exchange_is_neither_used_nor_adopted(
    blocked: Path, own: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_hostile, words = HOSTILE[what]
    settings = settings_of(blocked, own / "place" / "fallback")
    emit(settings, 1)
    folder = fallback_of(settings)
    assert folder is not None
    make_hostile(own / "place" / "fallback", folder)
    with pytest.raises(JournalError, match=f"the home {blocked} cannot be used") as refused:
        Home.open(settings)
    assert words in str(refused.value.__cause__)
    unblock(blocked)
    emit(settings, 2)
    assert kept(blocked) == [event(2)]
    assert "cannot be adopted now" in caplog.text


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_in_one_that_others_can_open_no_folder_is_made(blocked: Path, own: Path, mode: int) -> None:
    (own / "fallback").mkdir()
    (own / "fallback").chmod(mode)
    with pytest.raises(JournalError, match=str(blocked)):
        Home.open(settings_of(blocked, own / "fallback"))
    assert list((own / "fallback").iterdir()) == []


def test_one_that_is_reached_by_a_link_in_a_shared_folder_is_refused(
    blocked: Path, own: Path, tmp_path: Path
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared" / "link").symlink_to(own)
    with pytest.raises(JournalError, match=str(blocked)):
        Home.open(settings_of(blocked, tmp_path / "shared" / "link" / "fallback"))
    assert list(own.iterdir()) == []


@pytest.fixture
def in_memory(own: Path) -> Iterator[Path]:
    """A folder on a file system in memory."""
    folder = own / "memory"
    folder.mkdir(0o700)
    mount = shutil.which("mount")
    command = [mount or "", "-t", "tmpfs", "-o", "mode=0700,size=16m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user can mount no file system in memory")
    yield folder
    subprocess.run([shutil.which("umount") or "", str(folder)], check=True)


def test_one_in_memory_is_refused(blocked: Path, in_memory: Path) -> None:
    with pytest.raises(JournalError, match=str(blocked)) as refused:
        Home.open(settings_of(blocked, in_memory / "fallback"))
    assert "is in memory" in str(refused.value.__cause__)
    assert list(in_memory.iterdir()) == []


def test_strict_settings_and_a_fallback_that_cannot_be_made_leave_the_error_as_it_is(
    blocked: Path, own: Path
) -> None:
    (own / "file").write_text("")
    for settings in (
        settings_of(blocked, own / "fallback", strict=True),
        settings_of(blocked, own / "file" / "fallback"),
    ):
        with pytest.raises(JournalError) as raised:
            Home.open(settings)
        assert str(raised.value) == (
            f"the home {blocked} cannot be used (a part of its path is a file); correct that, or set another "
            "one with `home: DIR` in waybill.yaml"
        )
    assert [path.name for path in own.iterdir()] == ["file"]


def test_a_home_that_cannot_be_locked_is_replaced_too(home: Path, own: Path) -> None:
    settings = settings_of(home, own / "fallback")
    emit(settings, 1)
    (home / "agreement.lock").unlink()
    (home / "agreement.lock").mkdir()
    with pytest.raises(JournalError, match=r"cannot be locked .* check its disk"):
        Home.open(settings.with_values({"strict": True}, "tests"))
    emit(settings, 2)
    assert (kept(home), waiting_in_fallback(settings)) == ([event(1)], 1)


def test_what_waits_for_one_home_is_not_adopted_by_another(blocked: Path, home: Path, own: Path) -> None:
    emit(settings_of(blocked, own / "fallback"), 1)
    emit(settings_of(home, own / "fallback"), 2)
    assert kept(home) == [event(2)]


def test_what_is_adopted_is_redacted_as_the_home_redacts(blocked: Path, own: Path) -> None:
    standing_in = Home.open(settings_of(blocked, own / "fallback"))
    standing_in.emit(event(1))
    standing_in.note_transforms("r", ["secret"], waits=True)
    standing_in.close()
    unblock(blocked)
    rules = "run.facets.secret,run.facets.waybill_deltaFile.transforms=mask"
    Home.open(settings_of(blocked, own / "elsewhere", redact=rules)).close()
    Home.open(settings_of(blocked, own / "fallback")).close()
    kept_event, mark = Journal(blocked).read(0)
    assert json.loads(kept_event.body)["run"]["facets"] == {}
    note = mark.begun_transforms
    assert note is not None
    assert (note.run_id, note.count, note.names) == ("r", 1, ("[redacted]",))


def test_a_program_that_still_appends_while_it_is_adopted_loses_nothing(blocked: Path, own: Path) -> None:
    settings = settings_of(blocked, own / "fallback")
    living = Home.open(settings)
    living.emit(event(1))
    unblock(blocked)
    emit(settings, 2)
    living.emit(event(3))
    living.emit(event(1))
    emit(settings, 4)
    living.close()
    assert kept(blocked) == [event(number) for number in (1, 2, 3, 4)]


def test_of_many_that_adopt_at_once_each_entry_comes_once(blocked: Path, own: Path) -> None:
    settings = settings_of(blocked, own / "fallback")
    emit(settings, *range(20))
    unblock(blocked)
    at_once(partial(emit, settings, 100 + number) for number in range(4))
    emit(settings)
    found = kept(blocked)
    assert sorted(found) == sorted(event(number) for number in (*range(20), *range(100, 104)))
    assert not locks.is_held(blocked)


def test_a_flush_adopts(blocked: Path, own: Path) -> None:
    settings = settings_of(blocked, own / "fallback")
    emit(settings, 1)
    unblock(blocked)
    Home.open(settings_of(blocked, own / "elsewhere")).close()
    flush(settings)
    assert event(1) in kept(blocked)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", ["append_many", "commit", "prune"])
def test_a_program_that_dies_between_the_steps_of_an_adoption_loses_and_doubles_nothing(
    blocked: Path, own: Path, step: str, moment: str
) -> None:
    settings = settings_of(blocked, own / "fallback")
    emit(settings, 1, 2, 3)
    unblock(blocked)
    work = getattr(Journal, step)

    def crash(*arguments: Any, **named: Any) -> None:  # noqa: ANN401 - the step's own
        if moment == "after":
            work(*arguments, **named)
        os._exit(9)

    def adopt() -> None:
        setattr(Journal, step, crash)
        Home.open(settings)

    assert in_fork(adopt) == 9
    emit(settings, 4)
    assert kept(blocked) == [event(number) for number in (1, 2, 3, 4)]
    assert waiting_in_fallback(settings) == 0
