"""Files that somebody else removed, replaced or moved: answers and `status` say so until it is settled."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from served import COMPLETED_MS, Collector, record, without_runner

from waybill.exporter.differing import DIFFERING, LOCK, list_differing
from waybill.exporter.keys import changed, keep_step
from waybill.exporter.ledger import comparing
from waybill.exporter.names import KEYS
from waybill.transport import Journal, Kind, flush
from waybill.transport.config import agree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Run

    from waybill.transport import Settings

DAY = "20260131"
EDGE = f"provenance/compacted/edge/{DAY}/12.parquet"
OTHER = f"provenance/compacted/core/{DAY}/12.parquet"
LATER = f"provenance/compacted/edge/{DAY}/13.parquet"


def accept(settings: Settings, begin: int, number: int, hour: int = 0, system: str = "edge") -> None:
    """Store some records in the journal."""
    completed = COMPLETED_MS + hour * 3_600_000
    records = [
        record(did=f"d{at}", systemName=system, created=completed, completed=completed + at)
        for at in range(begin, begin + number)
    ]
    with closing(Journal(settings.home)) as journal:
        journal.append(Kind.PROVENANCE, json.dumps(records).encode())


def keep(settings: Settings, begin: int, number: int, system: str = "edge") -> None:
    """File some records."""
    accept(settings, begin, number, system=system)
    assert flush(settings).problems == {}


@pytest.fixture
def filed(settings: Settings) -> Path:
    """A root with 10 records of one hour of a system, 20 of another system, and 30 of the next hour."""
    with closing(Journal(settings.home)) as journal:
        agree(journal, settings)
    accept(settings, 0, 10)
    accept(settings, 100, 20, system="core")
    accept(settings, 200, 30, hour=1)
    assert flush(settings).problems == {}
    assert all((settings.root / path).exists() for path in (EDGE, OTHER, LATER))
    return settings.root


def remove(root: Path, _: Settings) -> None:
    (root / EDGE).unlink()


def cut(root: Path, _: Settings) -> None:
    os.truncate(root / EDGE, 500)


def put_back_older(root: Path, settings: Settings) -> None:
    shutil.copy2(root / EDGE, settings.home / "older")
    keep(settings, 50, 5)
    shutil.copy2(settings.home / "older", root / EDGE)


def exchange(root: Path, _: Settings) -> None:
    shutil.copyfile(root / OTHER, root / EDGE)


def move_to_another_system(root: Path, _: Settings) -> None:
    (root / f"provenance/compacted/else/{DAY}").mkdir(parents=True)
    (root / EDGE).rename(root / f"provenance/compacted/else/{DAY}/12.parquet")


def move_to_late(root: Path, _: Settings) -> None:
    (root / f"provenance/late/edge/{DAY}").mkdir(parents=True)
    (root / EDGE).rename(root / f"provenance/late/edge/{DAY}/12.parquet")


LEFT: dict[Any, int] = {remove: 50, cut: 50, exchange: 70}
SPOILT = [remove, cut, put_back_older, exchange, move_to_another_system, move_to_late]


def read(called: Run, home: Path, *words: str) -> tuple[int, int]:
    """The exit code and the number of records that `waybill find` gives."""
    done = called("find", "--home", home, *words)
    shown = done.stdout.split()
    return done.returncode, int(shown[0]) if "--count" in words else len(done.stdout.splitlines())


def ready(collector: Collector) -> tuple[dict[str, str], int, str | None]:
    """What readiness says, the status of the statistics, and the warning of the partial ones."""
    problems = collector.get("/health/ready").json["problems"]
    whole = collector.get("/api/v1/records/stats")
    part = collector.get("/api/v1/records/stats?partial=true")
    assert part.status == 200
    return problems, whole.status, part.headers.get("warning")


@pytest.mark.parametrize("spoil", SPOILT, ids=[spoil.__name__ for spoil in SPOILT])
def test_a_file_that_is_not_the_ledgers_is_told_by_every_answer_until_it_is_repaired(
    called: Run,
    settings: Settings,
    filed: Path,
    spoil: Callable[[Path, Settings], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    home = settings.home
    spoil(filed, settings)
    whole = 65 if spoil is put_back_older else 60
    left = LEFT.get(spoil, 60)
    with monkeypatch.context() as patch:
        patch.setattr(changed, "_HOLDS_S", 10**9)  # Nobody compares all files: who opens it tells.
        assert read(called, home, "--all", "--json")[0] == 1
        assert read(called, home, "--count")[0] == 1
    for _ in range(2):  # It stays so at the next look.
        called("flush", "--home", home)
        assert read(called, home, "--count") == (1, left)
        assert read(called, home, "--all", "--json") == (1, left)
    assert EDGE in called("find", "--home", home, "--count").stderr
    # Another hour is not concerned.
    since = ("--since", "2026-01-31T13:00:00Z")
    assert read(called, home, "--count", *since) == (0, 30)
    shown = called("status", "--home", home, "--json")
    kinds = [one["kind"] for one in json.loads(shown.stdout)["problems"]]
    assert (shown.returncode, kinds) == (1, ["differing"])
    called("repair", "--root", filed, "--home", home, "--workers", "1")
    settle(called, filed, home)
    called("flush", "--home", home)
    assert read(called, home, "--count") == (0, whole)
    assert read(called, home, "--all", "--json") == (0, whole)
    assert called("status", "--home", home).returncode == 0


def test_a_collector_tells_it_until_it_is_repaired(called: Run, settings: Settings, filed: Path) -> None:
    (filed / EDGE).unlink()
    called("flush", "--home", settings.home)
    with without_runner(settings.home) as collector:
        problems, status, warning = ready(collector)
        assert (list(problems), status) == (["differing"], 503)
        assert warning is not None
        assert "waybill repair --root" in problems["differing"]
        repair(filed, called, settings)
        assert ready(collector) == ({}, 200, None)


def test_an_answer_that_opens_no_such_file_tells_where_nobody_keeps_the_keys(
    called: Run, settings: Settings, filed: Path
) -> None:
    home = settings.home
    (filed / EDGE).unlink()
    # It is some time since the flush has compared, and another hour is asked for.
    os.utime(filed / KEYS / LOCK, (0, 0))
    assert read(called, home, "--count", "--since", "2026-01-31T13:00:00Z") == (0, 30)
    assert [one.path for one in list_differing(filed)] == [EDGE]
    for words in (
        ("find", "--count"),
        ("find", "--by", "state"),
        ("status",),
        ("sql", "SELECT count(*) FROM provenance"),
    ):
        (filed / DIFFERING).unlink()
        os.utime(filed / KEYS / LOCK, (0, 0))
        done = called(*words, "--home", home)
        assert (done.returncode, "is gone" in done.stderr + done.stdout) == (1, True), words


def settle(called: Run, root: Path, home: Path) -> None:
    """Accept every finding of `waybill verify`."""
    checked = ("verify", "--root", root, "--home", home)
    found = re.findall(r"\[([0-9a-f]{12})\]", called(*checked).stdout)
    called(*checked, *(part for one in found for part in ("--accept", one)), "--why", "tests")
    done = called(*checked)
    assert done.returncode == 0, done.stdout


def test_a_difference_that_somebody_accepts_is_none_any_more(
    called: Run, settings: Settings, filed: Path
) -> None:
    (filed / EDGE).unlink()
    called("flush", "--home", settings.home)
    assert read(called, settings.home, "--count") == (1, 50)
    settle(called, filed, settings.home)
    assert read(called, settings.home, "--count") == (0, 50)
    assert called("status", "--home", settings.home).returncode == 0


def test_a_file_that_comes_back_as_it_was_is_no_difference_any_more(
    called: Run, settings: Settings, filed: Path
) -> None:
    (filed / EDGE).rename(filed / "aside")
    called("flush", "--home", settings.home)
    assert read(called, settings.home, "--count") == (1, 50)
    (filed / "aside").rename(filed / EDGE)
    called("flush", "--home", settings.home)
    assert read(called, settings.home, "--count") == (0, 60)


def test_a_new_record_of_the_hour_does_not_hide_what_is_gone(
    called: Run, settings: Settings, filed: Path
) -> None:
    (filed / EDGE).unlink()
    called("flush", "--home", settings.home)
    keep(settings, 50, 5)
    assert read(called, settings.home, "--count") == (1, 55)


def test_a_loss_that_nobody_compared_before_the_hour_changed_is_told(
    called: Run, settings: Settings, filed: Path
) -> None:
    (filed / EDGE).unlink()
    keep(settings, 50, 5)  # Another file takes its place.
    (filed / OTHER).unlink()
    keep(settings, 60, 5)  # The hour changes, and the place stays empty.
    assert read(called, settings.home, "--count") == (1, 40)
    assert read(called, settings.home, "--all", "--json") == (1, 40)
    assert [one.path for one in list_differing(filed)] == [OTHER, EDGE]


def test_a_file_that_is_repaired_and_lost_again_is_told_again(
    called: Run, settings: Settings, filed: Path
) -> None:
    for _ in range(2):
        (filed / EDGE).unlink()
        called("flush", "--home", settings.home)
        assert read(called, settings.home, "--count") == (1, 50)
        repair(filed, called, settings)
        assert read(called, settings.home, "--count") == (0, 60)


def test_a_file_that_cannot_be_read_now_is_no_difference(
    called: Run, settings: Settings, filed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(filed / EDGE)

    def fail(path: Path) -> str | None:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(comparing, "seal_there", fail)
        assert keep_step(filed, again=True) is not None
    assert list_differing(filed) == []
    assert read(called, settings.home, "--count") == (0, 60)


def touch(root: Path, _: Run, __: Settings) -> None:
    for path in (EDGE, OTHER):
        os.utime(root / path)


def copy_over(root: Path, _: Run, __: Settings) -> None:
    shutil.copyfile(root / EDGE, root / "copy")
    (root / "copy").rename(root / EDGE)


def age_off(root: Path, called: Run, settings: Settings) -> None:
    for path in (EDGE, OTHER, LATER):
        os.utime(root / path, (COMPLETED_MS // 1_000, COMPLETED_MS // 1_000))
    done = called("age-off", "--root", root, "--home", settings.home, "--system-days", "core=1000000")
    assert done.returncode == 0, done.stderr
    assert [(root / path).exists() for path in (EDGE, OTHER, LATER)] == [False, True, False]


def export_and_delete(root: Path, called: Run, settings: Settings) -> None:
    places = (root.with_name("there"), "--create", "--root", root, "--home", settings.home)
    done = called("export", *places, "--delete-after")
    assert done.returncode == 0, done.stderr
    assert not any((root / path).exists() for path in (EDGE, OTHER, LATER))


def compact_again(_: Path, __: Run, settings: Settings) -> None:
    keep(settings, 0, 5)
    keep(settings, 50, 5, system="core")


def repair(root: Path, called: Run, settings: Settings) -> None:
    done = called("repair", "--root", root, "--home", settings.home, "--workers", "1")
    assert done.returncode == 0, done.stderr


def rebuild(root: Path, called: Run, settings: Settings) -> None:
    wanted = ("--from", "events", root, "--to", root, "--workers", "1")
    done = called("rebuild", *wanted, "--home", settings.home)
    assert done.returncode == 0, done.stderr


def rebuild_elsewhere(root: Path, called: Run, settings: Settings) -> None:
    """Rebuild another root, and then those files of it again that are a system's."""
    there = root.with_name("there")
    wanted = ("--from", "events", root, "--to", there, "--workers", "1")
    for again in ((), ("--system", "edge")):
        done = called("rebuild", *wanted, "--home", settings.home, *again)
        assert done.returncode == 0, done.stderr
        assert keep_step(there, again=True) is not None
        assert list_differing(there) == []
    assert read(called, settings.home, "--root", str(there), "--count") == (0, 60)


def forget_keys(root: Path, _: Run, __: Settings) -> None:
    shutil.rmtree(root / "provenance/keys")


def forget_seals(root: Path, _: Run, __: Settings) -> None:
    shutil.rmtree(root / "provenance/seals")
    shutil.rmtree(root / "provenance/keys")


LEFT_BY_WAYBILL: dict[Any, int] = {age_off: 20, export_and_delete: 0, compact_again: 65}
RIGHT: list[Any] = [
    touch,
    copy_over,
    age_off,
    export_and_delete,
    compact_again,
    repair,
    rebuild,
    rebuild_elsewhere,
    forget_keys,
    forget_seals,
]


@pytest.mark.parametrize("change", RIGHT, ids=[change.__name__ for change in RIGHT])
def test_what_waybill_itself_changes_and_the_same_bytes_again_are_no_difference(
    called: Run, settings: Settings, filed: Path, change: Callable[[Path, Run, Settings], None]
) -> None:
    change(filed, called, settings)
    called("flush", "--home", settings.home)
    shown = called("status", "--home", settings.home)
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    code, number = read(called, settings.home, "--count")
    assert (code, number) == read(called, settings.home, "--all", "--json")
    assert code == 0
    assert number == LEFT_BY_WAYBILL.get(change, 60)
