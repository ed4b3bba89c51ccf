from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pytest
from layouts import HOUR_MS, START_MS, Layout, event, facet, record
from manual_clock import ManualClock
from sites import Site

from waybill.exporter import open_layout
from waybill.exporter.compaction import GATHER_S
from waybill.facets import PRODUCER, ProvenanceRecord
from waybill.transport.runner import Projection as Protocol, unsettled

if TYPE_CHECKING:
    from waybill.transport import Settings

SETTLE_S = 0.3


def parent(run: str) -> dict[str, object]:
    return {"parent": {"run": {"runId": run}, "job": {"namespace": "edge", "name": "app"}}}


class Clocked(Site):
    """A home and its layout; work that has to wait moves the clock."""

    clock: ManualClock


def opened(settings: Settings) -> Clocked:
    clock = ManualClock(time.time_ns() // 1_000_000, moves_itself=True)
    return Clocked(settings, names=("layout",), clock=clock, settle_s=SETTLE_S)


@pytest.fixture
def site(settings: Settings) -> Iterator[Clocked]:
    site = opened(settings)
    yield site
    site.close()


def derived(run: str, at_ms: int, **changes: object) -> ProvenanceRecord:
    fields: dict[str, object] = {
        "data_source": "job",
        "filename": "job",
        "transforms": ("job",),
        "data_sink": None,
    }
    return record(run, at_ms=at_ms, **{**fields, "created": START_MS + at_ms, **changes})


# -- opening -----------------------------------------------------------------------------------------------


def test_the_layout_is_opened_only_where_provenance_is_enabled(site: Clocked) -> None:
    assert isinstance(open_layout(site.journal, site.settings), Protocol)
    off = msgspec.structs.replace(site.settings, provenance_enabled=False)
    assert open_layout(site.journal, off) is None


def test_entries_from_before_provenance_was_enabled_are_written_then(site: Clocked) -> None:
    site.emit(event("r", "COMPLETE", 5))
    assert site.layout.pending() == 1
    site.flush()
    assert site.rows() == [derived("r", 5)]
    assert site.layout.pending() == 0


# -- what is recorded when ---------------------------------------------------------------------------------


def test_an_event_with_the_facet_is_recorded_at_once(site: Clocked) -> None:
    fields = {
        "did": "d",
        "systemName": "edge",
        "dataSource": "in",
        "filename": "f",
        "transforms": ["t"],
        "dataSink": "out",
    }
    site.emit(event("r", "START", 0), event("r", "COMPLETE", 5, facets=facet(**fields)))
    site.work()
    expected = record("d", at_ms=5, filename="f", transforms=("t",), created=START_MS + 5)
    assert site.found() == [expected]
    assert site.layout.pending() == 0


def test_every_path_of_a_fan_out_is_recorded_and_other_events_of_the_run_add_nothing(site: Clocked) -> None:
    for sink in ("one", "two"):
        site.emit(event("r", "COMPLETE", 5, facets=facet(did="d", dataSink=sink)))
        site.work()
    site.emit(event("r", "COMPLETE", 9), event("r", "RUNNING", 1))
    site.flush()
    assert [row.data_sink for row in site.rows()] == ["one", "two"]


def test_a_run_without_the_facet_is_recorded_once_it_has_settled(site: Clocked) -> None:
    site.emit(event("r", "START", 0), event("r", "COMPLETE", 5))
    site.work()
    assert site.found() == []
    assert site.layout.pending() == 1
    site.clock.move(SETTLE_S)
    assert site.layout.step().applied == 1
    site.work()
    assert site.found() == [derived("r", 5, created=START_MS)]
    assert site.layout.pending() == 0


def test_runs_settle_in_time_after_a_clock_was_a_day_ahead(site: Clocked) -> None:
    now_ms = site.clock.now_ms()
    site.clock.set_ms(now_ms + 86_400_000)
    site.emit(event("r", "COMPLETE", 5))
    site.work()
    site.clock.set_ms(now_ms)
    for run, at_ms in (("r", 5), ("s", 6)):
        if run != "r":
            site.emit(event(run, "COMPLETE", at_ms))
            site.work()
        assert (site.layout.pending(), unsettled(site.journal, "layout")) == (1, 1)
        step = site.layout.step()
        assert 0 < (step.retry_s or 0) <= SETTLE_S
        site.clock.move(SETTLE_S)
        assert site.layout.step().applied == 1
        site.work()
        assert (site.layout.pending(), unsettled(site.journal, "layout")) == (0, 0)
        assert derived(run, at_ms) in site.found()


def test_a_run_settles_when_its_application_ends(site: Clocked) -> None:
    site.emit(event("child", "COMPLETE", 5, facets=parent("app")))
    site.emit(event("stranger", "COMPLETE", 6))
    site.emit(event("app", "COMPLETE", 9, job="app"))
    site.work()
    assert [row.did for row in site.found()] == ["child"]


INFERRED = {"waybill_inferred": {"reason": "the program that ran it is gone"}}
FILE = facet(did="d", dataSource="in", filename="f", annotations={"customer": "acme"})


@pytest.mark.parametrize(
    "later",
    [
        [event("r", "RUNNING", 5)],
        [event("r", "ABORT", 9, facets=INFERRED), event("f", "ABORT", 9, facets={**FILE, **INFERRED})],
    ],
    ids=["running", "inferred-end"],
)
def test_an_event_after_the_end_that_changes_nothing_writes_nothing(
    site: Clocked, later: list[bytes]
) -> None:
    site.emit(event("r", "COMPLETE", 5), event("f", "COMPLETE", 5, facets=FILE))
    site.flush()
    site.emit(*later)
    assert site.flush() == []


@pytest.mark.parametrize("reasons", [True, False])
def test_records_say_why_a_file_failed_unless_that_is_turned_off(
    settings: Settings, *, reasons: bool
) -> None:
    site = opened(msgspec.structs.replace(settings, provenance_reasons=reasons))
    tracked = facet(did="d", finalState="FILTERED", annotations={"filteredCause": "empty", "secret": "2"})
    site.emit(
        event("r", "COMPLETE", 5, facets=tracked, producer=PRODUCER),
        event("s", "FAIL", 6, facets={"errorMessage": {"message": "disk full"}}),
    )
    site.flush()
    written = [{"errorCause": "disk full"}, {"filteredCause": "empty"}] if reasons else [None, None]
    assert [row.annotations for row in site.rows()] == written
    site.journal.close()


# -- flush, upkeep -----------------------------------------------------------------------------------------


def test_a_flush_compacts_the_current_hour_and_lists_its_files(site: Clocked) -> None:
    now_ms = time.time_ns() // 1_000_000 - START_MS
    site.emit(event("r", "COMPLETE", now_ms))
    files = site.flush()
    assert [site.root / file for file in files] == Layout(site.root).compacted()
    assert len(files) == 1
    assert Layout(site.root).raw() == []


def test_an_hour_that_has_ended_is_compacted_without_being_asked(site: Clocked) -> None:
    Layout(site.root).write(record("old"))
    site.restart()
    assert site.layout.step().applied == 1
    assert [row.did for row in site.rows()] == ["old"]


def test_an_hour_is_compacted_two_minutes_after_its_end_and_its_late_rows_when_they_have_gathered(
    site: Clocked,
) -> None:
    site.clock.set_ms(START_MS)
    site.emit(event("r", "COMPLETE", 0, facets=facet(did="d")))
    site.work()
    left = (HOUR_MS + 119_000 - site.clock.now_ms() + START_MS) / 1_000
    for wait_s, dids in ((left, []), (1.0, ["d"])):
        site.clock.move(wait_s)
        site.work()
        assert [row.did for row in site.rows()] == dids
    site.emit(event("s", "COMPLETE", 1, facets=facet(did="late")))
    for wait_s, dids in ((0.0, ["d"]), (GATHER_S, ["d", "late"])):
        site.clock.move(wait_s)
        site.work()
        assert [row.did for row in site.rows()] == dids


def test_the_many_raw_files_of_an_hour_that_has_not_ended_become_few(site: Clocked) -> None:
    now_ms = time.time_ns() // 1_000_000 - START_MS
    for at in range(70):
        site.emit(event(f"r{at}", "COMPLETE", now_ms, facets=facet(did=f"d{at}")))
        site.work()
    assert len(Layout(site.root).raw()) < 10
    assert site.rows() == []
    assert len(site.found()) == 70
    site.flush()
    assert len(site.rows()) == 70
    assert Layout(site.root).raw() == []


def test_the_end_of_the_runner_leaves_no_raw_file(site: Clocked) -> None:
    site.emit(event("r", "COMPLETE", time.time_ns() // 1_000_000 - START_MS, facets=facet(did="d")))
    site.work()
    assert site.rows() == []
    site.layout.finish()
    assert [row.did for row in site.rows()] == ["d"]
    assert Layout(site.root).raw() == []


@pytest.mark.parametrize(("count", "waits_s"), [(1, 3.0), (99, 3.0), (100, 1.0)])
def test_few_entries_wait_longer_for_others_since_each_batch_is_a_file(
    site: Clocked, count: int, waits_s: float
) -> None:
    site.restart(linger_s=1.0)
    site.emit(event("r", "COMPLETE", 0, facets=facet(did="d")))
    assert site.layout.step().applied
    began_s = site.clock.monotonic_s()
    site.emit(*(event(f"r{at}", "COMPLETE", at, facets=facet(did=f"d{at}")) for at in range(count)))
    while not (step := site.layout.step()).applied:
        assert step.gathers
        site.clock.move(step.retry_s or 0)
    assert site.clock.monotonic_s() - began_s == pytest.approx(waits_s, abs=0.01)


def test_a_flush_does_not_wait_for_further_entries(site: Clocked) -> None:
    site.restart(linger_s=1.0)
    site.emit(event("r", "COMPLETE", 0, facets=facet(did="d")))
    assert site.layout.step().applied
    began_s = site.clock.monotonic_s()
    site.emit(event("s", "COMPLETE", 0, facets=facet(did="e")))
    site.flush()
    assert site.clock.monotonic_s() - began_s < 0.01


# -- trouble -----------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_now_is_a_problem_that_holds_up_nothing_until_it_can(
    site: Clocked,
) -> None:
    bad = site.root / "provenance/raw/20260101/05/ffff-1-2.parquet"
    bad.mkdir(parents=True)
    site.restart(gather_s=0.0)
    site.emit(event("r", "COMPLETE", 5))
    site.journal.mark(b"flush")
    problems = [site.layout.step().problem for _ in range(3)]
    assert str(bad) in str(problems[-1])
    assert [row.did for row in site.rows()] == ["r"]
    bad.rmdir()
    site.layout.step()
    assert site.layout.step().problem is None
