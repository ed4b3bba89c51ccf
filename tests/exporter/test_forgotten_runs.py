"""Later events of a forgotten run are merged with the earlier ones; other runs are not searched for."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from layouts import HOUR_MS, START_MS, event, facet
from manual_clock import ManualClock
from sites import NAMES, Site

from waybill.exporter.archive import archived_files, read_entries, read_run_ids
from waybill.exporter.layout import write_again
from waybill.exporter.layout.runs import Run
from waybill.exporter.query import TailReader
from waybill.facets import FinalState
from waybill.transport import Journal, Settings
from waybill.transport.journal import key_of_run
from waybill.transport.root import adopt_root, plan_adoption

if TYPE_CHECKING:
    from waybill.transport.journal import Entry


class Forgetting(Site):
    """A home that forgets a run after a second; its clock starts some days after `START_MS`."""

    clock: ManualClock

    def __init__(self, settings: Settings) -> None:
        clock = ManualClock(START_MS + 72 * HOUR_MS, moves_itself=True)
        super().__init__(msgspec.structs.replace(settings, journal_retain_days=1 / 86_400), clock=clock)

    def pass_hours(self, hours: int) -> None:
        self.clock.move(hours * 3_600)

    def forget(self) -> None:
        """Let enough time pass that everything is forgotten."""
        self.pass_hours(1)
        self.tell(event(f"next-{len(self.bodies)}", "START", 0))
        runs = [msgspec.msgpack.decode(row, type=Run) for row in self.runs().values()]
        assert [run.is_forgotten for run in runs].count(False) == 1

    def runs(self) -> dict[str, bytes]:
        """What is stored of each run."""
        return self.journal.state("layout", "run:")


@pytest.fixture
def site(settings: Settings) -> Iterator[Forgetting]:
    made = Forgetting(settings)
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The archive files that are searched for runs."""
    paths: list[Path] = []

    def note(path: Path, *, run_ids: Collection[str]) -> Iterator[list[Entry]]:
        paths.append(path)
        return read_entries(path, run_ids=run_ids)

    monkeypatch.setattr("waybill.exporter.sources.events.read_entries", note)
    return paths


COMPLETE: Final = event("r", "COMPLETE", 5)
FAIL: Final = event("r", "FAIL", 9)


NEIGHBOURS: Final = [run for run in map(str, range(20_000)) if key_of_run(run).startswith("000")][:3]
"""Runs that are looked through together."""


def unknown(number: int, kind: str = "COMPLETE") -> list[bytes]:
    """Old events, of this many runs whose ids do not contain a time."""
    return [event(str(uuid.uuid4()), kind, at) for at in range(number)]


# -- what stays of them ------------------------------------------------------------------------------------


def test_what_stays_of_a_forgotten_run_is_small_and_goes_with_the_archive(site: Forgetting) -> None:
    site.tell(*(event(f"r{number}", "RUNNING", 5) for number in range(50)))
    size_bytes = sum(map(len, site.runs().values()))
    site.forget()
    assert len(site.runs()) == 51
    assert sum(map(len, site.runs().values())) < size_bytes / 3
    site.pass_hours(24)
    site.tell(*unknown(1))
    shutil.rmtree(min((site.root / "events").iterdir()))
    site.pass_hours(1)
    site.tell(*unknown(1))
    assert len(site.runs()) == 2


def test_a_run_is_not_forgotten_before_its_entries_are_archived(site: Forgetting) -> None:
    site.emit(COMPLETE)
    site.flush("layout")
    site.pass_hours(1)
    site.emit(event("next", "START", 0))
    site.flush("layout")
    site.emit(FAIL)
    site.flush("layout")
    site.check()


@pytest.mark.parametrize(("max_bytes", "remembered"), [(4_000_000, 1), (10_000_000, 2), (10 * 2**30, 3)])
def test_the_newest_forgotten_runs_are_remembered_in_a_tenth_of_the_journal(
    site: Forgetting, max_bytes: int, remembered: int
) -> None:
    site.settings = msgspec.structs.replace(site.settings, journal_max_bytes=max_bytes)
    site.restart()
    for run in NEIGHBOURS:
        site.tell(event(run, "COMPLETE", 5))
        site.pass_hours(1)
    site.tell(*unknown(1))
    assert [run for run in NEIGHBOURS if f"run:{key_of_run(run)}" in site.runs()] == NEIGHBOURS[-remembered:]


def test_runs_are_looked_through_a_few_at_a_time(site: Forgetting, monkeypatch: pytest.MonkeyPatch) -> None:
    site.tell(*(event(f"r{number}", "RUNNING", 5) for number in range(1_000)))
    looked_at: list[int] = []
    read = Journal.state

    def note(journal: Journal, projection: str, prefix: str = "") -> dict[str, bytes]:
        rows = read(journal, projection, prefix)
        looked_at.extend([len(rows)] if prefix.startswith("run:") else [])
        return rows

    monkeypatch.setattr(Journal, "state", note)
    site.pass_hours(1)
    site.tell(*unknown(1))
    assert sum(looked_at) >= 1_000
    assert max(looked_at) <= 4  # the mean is a quarter


# -- what is looked for ------------------------------------------------------------------------------------


def test_runs_that_were_never_forgotten_are_not_looked_for(
    site: Forgetting, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        site.tell(*unknown(20))
        site.pass_hours(1)
    assert len(archived_files(site.root)) == 5
    with monkeypatch.context() as patched:
        patched.setattr(
            "waybill.exporter.layout.forgotten_runs.archived_files", lambda *_: pytest.fail("looked for")
        )
        site.tell(*unknown(1_000, "START"))
    assert opened == []
    site.check()


def test_the_ids_in_files_from_while_the_layout_was_off_are_read_once_and_no_others(
    site: Forgetting, opened: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def note(path: Path) -> set[str]:
        read.append(path)
        return read_run_ids(path)

    monkeypatch.setattr("waybill.exporter.layout.forgotten_runs.read_run_ids", note)
    site.emit(*unknown(3))
    site.flush("archive")
    site.pass_hours(1)
    site.emit(event("next", "START", 0))
    site.journal.prune(site.journal.last_seq(), site.clock.now_ms())
    earlier = [path for _, path in archived_files(site.root)]
    for _ in range(3):
        site.pass_hours(1)
        site.restart()
        site.tell(*unknown(3))
    assert read == earlier
    assert opened == []


@pytest.mark.parametrize(
    ("run", "later_ms"),
    [("r" * 600, 9), ("#r", 9), ("r", 74 * HOUR_MS), ("019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11", 74 * HOUR_MS)],
)
def test_a_forgotten_run_is_looked_for_whatever_its_id_and_the_time_of_its_event(
    site: Forgetting, run: str, later_ms: int
) -> None:
    site.tell(event(run, "COMPLETE", 5))
    site.forget()
    site.tell(event(run, "FAIL", later_ms))
    site.check()


OUT: Final = {"outputs": [{"namespace": "file", "name": "out"}]}
ANOTHER_OUT: Final = {"outputs": [{"namespace": "file", "name": "another"}]}


@pytest.mark.parametrize(
    ("before", "later"),
    [
        ([("START", 0, {}), ("COMPLETE", 5, {})], [("FAIL", 9, {})]),
        ([("START", 0, {})], [("COMPLETE", 5, {})]),
        ([("START", 0, {}), ("COMPLETE", 5, {})], [("RUNNING", 3, OUT), ("RUNNING", 4, ANOTHER_OUT)]),
        ([("COMPLETE", 5, {"facets": facet(did="d")})], [("FAIL", 9, {})]),
        ([("COMPLETE", 5, {})], [("FAIL", 9, {"facets": facet(did="d")})]),
    ],
)
def test_what_comes_of_a_run_that_was_forgotten_is_merged_with_what_the_archive_has_of_it(
    site: Forgetting,
    before: list[tuple[str, int, dict[str, object]]],
    later: list[tuple[str, int, dict[str, object]]],
) -> None:
    site.tell(*(event("r", kind, at_ms, **dict(more)) for kind, at_ms, more in before))
    site.forget()
    for kind, at_ms, more in later:
        site.emit(event("r", kind, at_ms, **dict(more)))
        site.work()
        site.flush()  # it settles in another batch than the one that brings it back
        site.check()


def test_a_run_is_remembered_from_its_last_event_whatever_older_files_are_found(
    site: Forgetting, tmp_path: Path
) -> None:
    site.emit(event("r", "START", 0))
    site.flush("archive")
    site.pass_hours(24)
    site.emit(event("next", "START", 0))
    site.journal.prune(site.journal.last_seq(), site.clock.now_ms())
    [(_, older)] = archived_files(site.root)
    older.rename(tmp_path / "older")
    site.tell(COMPLETE)
    site.forget()
    (tmp_path / "older").rename(older)
    site.journal.renew_node(site.journal.node, "for a test")
    site.tell(*unknown(1))
    shutil.rmtree(older.parents[1])
    site.pass_hours(1)
    site.tell(*unknown(1))
    assert f"run:{key_of_run('r')}" in site.runs()


# -- what the archive has and the state has not ------------------------------------------------------------


def test_a_run_that_was_forgotten_under_another_node_is_looked_for(site: Forgetting) -> None:
    site.tell(COMPLETE)
    site.forget()
    site.journal.renew_node(site.journal.node, "for a test")
    site.tell(*unknown(1))
    site.tell(FAIL)
    site.check()


@pytest.mark.parametrize("reopened_by", ["emitter", "projections"])
def test_a_run_that_only_the_journal_before_it_was_put_back_knew_is_looked_for(
    site: Forgetting, tmp_path: Path, reopened_by: str
) -> None:
    site.tell(*unknown(1))
    site.journal.close()
    shutil.copytree(site.settings.home, tmp_path / "copy")
    site.tell(COMPLETE)
    site.pass_hours(1)
    site.journal.close()
    shutil.rmtree(site.settings.home)
    (tmp_path / "copy").rename(site.settings.home)
    if reopened_by == "emitter":
        site.open()
    else:
        site.open(as_emitter=False)
    site.emit(FAIL, *unknown(5))
    # If no emitter has checked the root, the layout's first range shows that the journal was put back.
    site.flush("layout", "archive")
    assert len(site.journal.nodes()) == 2
    site.check()


def test_a_run_that_was_forgotten_before_the_root_was_adopted_is_looked_for(
    site: Forgetting, tmp_path: Path
) -> None:
    root = site.root
    site.tell(COMPLETE)
    site.forget()
    shutil.copytree(root, tmp_path / "copy")
    site.tell(*unknown(3))
    shutil.rmtree(root)
    (tmp_path / "copy").rename(root)
    adoption = plan_adoption(site.journal, root, NAMES)
    write_again(site.journal, adoption.cursors["layout"])
    adopt_root(site.journal, root, adoption)
    site.restart()
    site.pass_hours(1)
    site.tell(FAIL)
    site.check()


@pytest.mark.parametrize("before", [[], unknown(2)])
def test_a_run_that_came_while_the_layout_was_off_is_looked_for(
    site: Forgetting, before: list[bytes]
) -> None:
    if before:
        site.tell(*before)
    site.emit(COMPLETE)
    site.flush("archive")
    site.pass_hours(1)
    site.emit(event("next", "START", 0))
    site.journal.prune(site.journal.last_seq(), site.clock.now_ms())
    site.tell(FAIL)
    site.check()


def test_a_question_about_a_forgotten_run_is_answered_without_the_archive(site: Forgetting) -> None:
    site.tell(COMPLETE)
    site.forget()
    shutil.rmtree(site.root / "events")
    site.emit(FAIL)
    with contextlib.closing(Journal(site.settings.home, to_read=True)) as journal:
        tail = TailReader(journal).read(site.settings)
    assert tail.records.num_rows == 1


def test_without_an_archive_a_late_event_of_a_forgotten_run_is_recorded_on_its_own(site: Forgetting) -> None:
    site.settings = msgspec.structs.replace(site.settings, archive_enabled=False)
    site.restart()
    for body in (COMPLETE, event("next", "START", 0), FAIL):
        site.emit(body)
        site.flush("layout")
        site.pass_hours(1)
    assert [row.final_state for row in site.rows()] == [FinalState.COMPLETE, FinalState.ERROR]
    assert site.journal.poison.all() == []


def test_a_run_that_goes_on_in_the_batch_that_would_forget_it_stays(site: Forgetting) -> None:
    outputs = [{"namespace": "o", "name": f"{at}" + "x" * 200} for at in range(40)]
    site.tell(event("r", "RUNNING", 1, outputs=outputs))
    site.emit(event("r", "RUNNING", 2))
    site.pass_hours(1)
    site.tell(event("next", "START", 0))
    site.tell(COMPLETE)
    site.check()
