from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from layouts import HOUR_MS, START_MS, Layout, event, in_order, record
from manual_clock import ManualClock
from openlineage.client.uuid import generate_new_uuid

from waybill.exporter import open_layout
from waybill.exporter.archive import Archive
from waybill.exporter.compaction import GATHER_S
from waybill.exporter.layout import Layout as Projection
from waybill.exporter.layout.runs import Run
from waybill.exporter.quarantine import list_quarantined
from waybill.facets import PRODUCER, ProvenanceRecord, decode_event, fold
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings
from waybill.transport.files import Files
from waybill.transport.journal import StateRows, key_of_run
from waybill.transport.runner import Projection as Protocol, unsettled

SETTLE_S = 0.3


def facet(**fields: object) -> dict[str, object]:
    return {"waybill_deltaFile": {"_producer": "p", "_schemaURL": "s", **fields}}


def parent(run: str) -> dict[str, object]:
    return {"parent": {"run": {"runId": run}, "job": {"namespace": "edge", "name": "app"}}}


class Site:
    """A journal and its layout, worked step by step."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = ManualClock(time.time_ns() // 1_000_000)
        self.journal = Journal(settings.home, clock=self.clock)
        self.files: Files = Files()
        self.restart()

    def restart(self, *, linger_s: float = 0.0, gather_s: float = GATHER_S) -> None:
        self.layout = Projection(
            self.journal,
            self.settings,
            files=self.files,
            workers=1,
            settle_s=SETTLE_S,
            linger_s=linger_s,
            gather_s=gather_s,
        )

    def emit(self, *bodies: bytes) -> None:
        self.journal.append_many((Kind.OPENLINEAGE, body, "stamped") for body in bodies)

    def work(self) -> None:
        """Step until every entry is processed."""
        while self.journal.cursor("layout") < self.journal.last_seq():
            step = self.layout.step()
            assert step.problem is None
            if not step.applied:
                self.clock.move(step.retry_s or 0)

    def flush(self) -> list[str]:
        mark = self.journal.mark(b"flush")
        self.work()
        said = self.journal.state_get("layout", f"flush:{mark}")
        assert said is not None
        files: list[str] = json.loads(said)
        return files

    def rows(self) -> list[ProvenanceRecord]:
        return Layout(self.settings.root).rows()

    def found(self) -> list[ProvenanceRecord]:
        return find(self.settings.root)


@pytest.fixture
def site(settings: Settings) -> Iterator[Site]:
    opened = Site(settings)
    yield opened
    opened.journal.close()


def derived(run: str, at_ms: int, **changes: object) -> ProvenanceRecord:
    fields: dict[str, object] = {
        "data_source": "job",
        "filename": "job",
        "transforms": ("job",),
        "data_sink": None,
    }
    return record(run, at_ms=at_ms, **{**fields, "created": START_MS + at_ms, **changes})


# -- opening -----------------------------------------------------------------------------------------------


def test_the_layout_is_opened_only_where_provenance_is_enabled(site: Site) -> None:
    assert isinstance(open_layout(site.journal, site.settings), Protocol)
    off = msgspec.structs.replace(site.settings, provenance_enabled=False)
    assert open_layout(site.journal, off) is None


def test_entries_from_before_provenance_was_enabled_are_written_then(site: Site) -> None:
    site.emit(event("r", "COMPLETE", 5))
    assert site.layout.pending() == 1
    site.flush()
    assert site.rows() == [derived("r", 5)]
    assert site.layout.pending() == 0


# -- what is recorded when ---------------------------------------------------------------------------------


def test_an_event_with_the_facet_is_recorded_at_once(site: Site) -> None:
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


def test_every_path_of_a_fan_out_is_recorded_and_other_events_of_the_run_add_nothing(site: Site) -> None:
    for sink in ("one", "two"):
        site.emit(event("r", "COMPLETE", 5, facets=facet(did="d", dataSink=sink)))
        site.work()
    site.emit(event("r", "COMPLETE", 9), event("r", "RUNNING", 1))
    site.flush()
    assert [row.data_sink for row in site.rows()] == ["one", "two"]


def test_a_run_without_the_facet_is_recorded_once_it_has_settled(site: Site) -> None:
    site.emit(event("r", "START", 0), event("r", "COMPLETE", 5))
    site.work()
    assert site.found() == []
    assert site.layout.pending() == 1
    site.clock.move(SETTLE_S)
    assert site.layout.step().applied == 1
    site.work()
    assert site.found() == [derived("r", 5, created=START_MS)]
    assert site.layout.pending() == 0


def test_runs_settle_in_time_after_a_clock_was_a_day_ahead(site: Site) -> None:
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


def test_a_run_settles_when_its_application_ends(site: Site) -> None:
    site.emit(event("child", "COMPLETE", 5, facets=parent("app")))
    site.emit(event("stranger", "COMPLETE", 6))
    site.emit(event("app", "COMPLETE", 9, job="app"))
    site.work()
    assert [row.did for row in site.found()] == ["child"]


def test_an_event_after_the_end_that_changes_nothing_writes_nothing(site: Site) -> None:
    site.emit(event("r", "COMPLETE", 5))
    site.flush()
    site.emit(event("r", "RUNNING", 5))
    assert site.flush() == []


def test_a_facet_that_comes_after_a_derived_record_replaces_it(site: Site) -> None:
    site.emit(event("r", "COMPLETE", 5))
    site.flush()
    site.emit(event("r", "COMPLETE", 5, facets=facet(did="d", dataSource="in", filename="f")))
    site.flush()
    assert [(row.did, row.filename) for row in site.rows()] == [("d", "f")]


INFERRED = {"waybill_inferred": {"reason": "the program that ran it is gone"}}
FILE = facet(did="d", dataSource="in", filename="f", annotations={"customer": "acme"})


def test_an_inferred_end_of_a_run_that_ended_by_itself_writes_nothing(site: Site) -> None:
    site.emit(event("r", "COMPLETE", 5), event("f", "COMPLETE", 5, facets=FILE))
    site.flush()
    site.emit(event("r", "ABORT", 9, facets=INFERRED), event("f", "ABORT", 9, facets={**FILE, **INFERRED}))
    assert site.flush() == []


def test_provenance_records_are_written_with_the_stamped_name_where_they_carry_none(site: Site) -> None:
    body = {
        "did": "d",
        "dataSource": "in",
        "filename": "f",
        "transforms": [],
        "finalState": "FILTERED",
        "created": 1,
        "completed": START_MS,
    }
    site.journal.append(
        Kind.PROVENANCE, json.dumps([body, {**body, "systemName": "own"}]).encode(), "stamped"
    )
    site.flush()
    assert sorted(row.system_name for row in site.rows()) == ["own", "stamped"]


def test_only_allowed_annotations_reach_the_records(settings: Settings) -> None:
    site = Site(msgspec.structs.replace(settings, provenance_annotations_allowed=frozenset({"kept"})))
    site.emit(event("r", "COMPLETE", 5, facets=facet(did="d", annotations={"kept": "1", "secret": "2"})))
    site.emit(event("s", "COMPLETE", 5, facets=facet(did="e", annotations={"secret": "2"})))
    site.flush()
    assert [row.annotations for row in site.rows()] == [{"kept": "1"}, None]
    site.journal.close()


@pytest.mark.parametrize("reasons", [True, False])
def test_records_say_why_a_file_failed_unless_that_is_turned_off(
    settings: Settings, *, reasons: bool
) -> None:
    site = Site(msgspec.structs.replace(settings, provenance_reasons=reasons))
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


def test_a_flush_compacts_the_current_hour_and_lists_its_files(site: Site) -> None:
    now_ms = time.time_ns() // 1_000_000 - START_MS
    site.emit(event("r", "COMPLETE", now_ms))
    files = site.flush()
    assert [site.settings.root / file for file in files] == Layout(site.settings.root).compacted()
    assert len(files) == 1
    assert Layout(site.settings.root).raw() == []


def test_an_hour_that_has_ended_is_compacted_without_being_asked(site: Site) -> None:
    Layout(site.settings.root).write(record("old"))
    site.restart()
    assert site.layout.step().applied == 1
    assert [row.did for row in site.rows()] == ["old"]


def test_the_many_raw_files_of_an_hour_that_has_not_ended_become_few(site: Site) -> None:
    now_ms = time.time_ns() // 1_000_000 - START_MS
    for at in range(70):
        site.emit(event(f"r{at}", "COMPLETE", now_ms, facets=facet(did=f"d{at}")))
        site.work()
    assert len(Layout(site.settings.root).raw()) < 10
    assert site.rows() == []
    assert len(site.found()) == 70
    site.flush()
    assert len(site.rows()) == 70
    assert Layout(site.settings.root).raw() == []


def test_the_end_of_the_runner_leaves_no_raw_file(site: Site) -> None:
    site.emit(event("r", "COMPLETE", time.time_ns() // 1_000_000 - START_MS, facets=facet(did="d")))
    site.work()
    assert site.rows() == []
    site.layout.finish()
    assert [row.did for row in site.rows()] == ["d"]
    assert Layout(site.settings.root).raw() == []


def test_entries_that_follow_soon_wait_for_each_other(site: Site) -> None:
    site.restart(linger_s=0.2)
    for at in range(10):
        site.emit(event(f"r{at}", "COMPLETE", at, facets=facet(did=f"d{at}")))
        site.layout.step()
    site.work()
    assert 2 <= len(Layout(site.settings.root).raw()) <= 5
    assert len(site.found()) == 10


@pytest.mark.parametrize(("count", "waits_s"), [(1, 3.0), (99, 3.0), (100, 1.0)])
def test_few_entries_wait_longer_for_others_since_each_batch_is_a_file(
    site: Site, count: int, waits_s: float
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


def test_a_flush_does_not_wait_for_further_entries(site: Site) -> None:
    site.restart(linger_s=1.0)
    site.emit(event("r", "COMPLETE", 0, facets=facet(did="d")))
    assert site.layout.step().applied
    began_s = site.clock.monotonic_s()
    site.emit(event("s", "COMPLETE", 0, facets=facet(did="e")))
    site.flush()
    assert site.clock.monotonic_s() - began_s < 0.01


def test_while_runs_settle_and_others_come_no_step_asks_again_at_once(site: Site) -> None:
    site.restart(linger_s=0.5)
    ends_s = site.clock.monotonic_s() + 2.5
    for at in range(10_000):
        if site.clock.monotonic_s() > ends_s:
            break
        if at % 2 == 0:
            site.emit(event(f"plain-{at}", "COMPLETE", at))
        step = site.layout.step()
        if not step.applied:
            site.clock.move(step.retry_s or 0)
    assert at < 100
    assert site.layout.pending() < 10


# -- trouble -----------------------------------------------------------------------------------------------

STORY: tuple[tuple[bytes, ...], ...] = (
    (
        event("a", "START", 0),
        event("a", "COMPLETE", 5),
        event("f", "COMPLETE", 6, facets=facet(did="d", dataSink="one")),
    ),
    (event("b", "COMPLETE", HOUR_MS), event("f", "COMPLETE", 7, facets=facet(did="d", dataSink="two"))),
    (
        event("a", "FAIL", HOUR_MS + 4),
        event("b", "START", HOUR_MS - 3, inputs=[{"namespace": "n", "name": "x/y"}]),
    ),
)


def tell(site: Site) -> None:
    for bodies in STORY:
        site.emit(*bodies)
        site.flush()
    site.layout.finish()


def expected() -> list[ProvenanceRecord]:
    events = [decode_event(body) for body in itertools.chain.from_iterable(STORY)]
    return in_order(fold(events, system_name="stamped"))  # type: ignore[arg-type]


class FullDisk(Files):
    """Refuses to write while it is marked as full."""

    full = True

    def write(self, path: Path, data: object) -> None:
        if self.full:
            raise OSError(28, "No space left on device", str(path))
        super().write(path, data)  # type: ignore[arg-type]


def test_a_full_disk_is_a_problem_that_is_told_and_heals(site: Site) -> None:
    disk = site.files = FullDisk()
    site.restart()
    site.emit(event("r", "COMPLETE", 5))
    site.journal.mark(b"flush")
    site.layout.step()
    step = site.layout.step()
    assert "the disk is full" in str(step.problem)
    assert step.retry_s
    assert site.layout.pending() > 0
    disk.full = False
    site.work()
    assert site.rows() == [derived("r", 5)]


def test_a_damaged_file_is_set_aside_and_holds_up_nothing(site: Site) -> None:
    bad = site.settings.root / "provenance/raw/20260101/05/ffff-1-2.parquet"
    bad.parent.mkdir(parents=True)
    bad.write_bytes(b"damaged")
    site.restart()
    site.emit(event("r", "COMPLETE", 5))
    site.journal.mark(b"flush")
    assert [site.layout.step().problem for _ in range(3)] == [None] * 3
    assert [site.settings.root / one.path for one in list_quarantined(site.settings.root)] == [bad]
    assert [row.did for row in site.rows()] == ["r"]


def test_a_file_that_cannot_be_read_now_is_a_problem_that_holds_up_nothing_until_it_can(site: Site) -> None:
    bad = site.settings.root / "provenance/raw/20260101/05/ffff-1-2.parquet"
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


# -- the law -----------------------------------------------------------------------------------------------


def test_what_nothing_concerns_for_long_is_forgotten_and_the_rest_is_not(settings: Settings) -> None:
    site = Site(msgspec.structs.replace(settings, journal_retain_days=1 / 86_400, archive_enabled=False))
    site.emit(event("old", "COMPLETE", 5), event("marked", "COMPLETE", 5, facets=facet(did="d")))
    site.flush()
    assert set(site.journal.state("layout", "run:")) == _rows("old", "marked")
    site.clock.move(300)
    site.emit(event("new", "START", 5))
    site.flush()
    assert set(site.journal.state("layout", "run:")) == _rows("new")
    site.journal.close()


OUT = {"outputs": [{"namespace": "file", "name": "out"}]}
OLD_ID = "019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11"


@pytest.mark.parametrize("run", ["r", OLD_ID])
@pytest.mark.parametrize(
    ("before", "later"),
    [
        ([("START", 0, {}), ("COMPLETE", 5, {})], [("FAIL", 9, {})]),
        ([("START", 0, {}), ("COMPLETE", 5, {})], [("COMPLETE", HOUR_MS, {}), ("FAIL", 2 * HOUR_MS, {})]),
        ([("START", 0, {})], [("COMPLETE", 5, {})]),
        ([("START", 0, {}), ("COMPLETE", 5, {})], [("RUNNING", 3, OUT)]),
        ([("COMPLETE", 5, {"facets": facet(did="d")})], [("FAIL", 9, {})]),
        ([("COMPLETE", 5, {})], [("FAIL", 9, {"facets": facet(did="d")})]),
        (  # begun again under its id, twice
            [("START", 0, {}), ("FAIL", 5, {})],
            [
                ("START", HOUR_MS, {}),
                ("COMPLETE", HOUR_MS + 9, {}),
                ("START", 2 * HOUR_MS, {}),
                ("FAIL", 2 * HOUR_MS + 9, {}),
            ],
        ),
    ],
)
def test_what_comes_of_a_run_that_was_forgotten_is_merged_with_what_the_archive_has_of_it(
    settings: Settings,
    run: str,
    before: list[tuple[str, int, dict[str, object]]],
    later: list[tuple[str, int, dict[str, object]]],
) -> None:
    site = Site(msgspec.structs.replace(settings, journal_retain_days=1 / 86_400))
    archive = Archive(site.journal, site.settings)
    bodies = [event(run, kind, at_ms, **dict(more)) for kind, at_ms, more in before]
    site.emit(*bodies, event("other", "COMPLETE", 7))
    site.flush()
    while archive.pending():
        archive.step()
    site.clock.move(3_600)
    site.emit(event("next", "START", 0))
    site.flush()
    runs = StateRows(site.journal, "layout", "run:", Run).all()
    assert [key for key, one in runs.items() if not one.is_forgotten] == [key_of_run("next")]
    for kind, at_ms, more in later:
        bodies.append(event(run, kind, at_ms, **dict(more)))
        site.emit(bodies[-1])
        site.flush()
        while archive.pending():
            archive.step()
        events = [decode_event(body) for body in (*bodies, event("other", "COMPLETE", 7))]
        assert site.rows() == in_order(fold(events, system_name="stamped"))  # type: ignore[arg-type]
    site.journal.close()


def test_a_run_that_cannot_have_been_forgotten_is_not_looked_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.emit(event("first", "START", 5))
    site.work()
    monkeypatch.setattr(
        "waybill.exporter.layout.forgotten_runs.archived_files", lambda _root: pytest.fail("looked for")
    )
    site.emit(event(str(generate_new_uuid()), "COMPLETE", 5))
    site.flush()
    assert len(site.rows()) == 1


def _rows(*runs: str) -> set[str]:
    return {f"run:{key_of_run(run)}" for run in runs}
