"""What is asked of a home before its layout has written it is what the layout writes then."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest
from events import event
from manual_clock import ManualClock

from waybill.exporter import stored_records
from waybill.exporter.layout import Layout
from waybill.exporter.query import BacklogError, Query, TailReader, scan, tail
from waybill.facets.arrow import from_table
from waybill.transport import Journal, Kind, Settings
from waybill.transport.config import agree
from waybill.transport.root import Filing

LATER_MS = 2**42
"""The time when every run here has settled."""


def told(
    run: str, kind: str, second: int = 0, *, output: str = "table", **facets: object
) -> tuple[Kind, bytes, str]:
    """An event of a client that knows nothing of Waybill."""
    at = f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
    return Kind.OPENLINEAGE, event(run, kind, at, outputs=[f"db/{output}"], facets=facets), ""


@contextlib.contextmanager
def tails_of(
    settings: Settings, *, clock: ManualClock | None = None, entries_max: int | None = None
) -> Iterator[TailReader]:
    """A reader of a home's tail."""
    clock = clock or ManualClock(LATER_MS)
    with contextlib.closing(Journal(settings.home, to_read=True, clock=clock)) as journal:
        yield TailReader(journal, entries_max=entries_max)


def found_by(tails: TailReader, settings: Settings, query: Query | None = None) -> list[Any]:
    """The records that are found with a reader's tail, as tuples."""
    tables = list(scan(settings.root, query, tail=tails.read(settings)))
    return [msgspec.structs.astuple(record) for table in tables for record in from_table(table)]


def found_in(settings: Settings, query: Query | None = None) -> list[Any]:
    """The records that a home finds, as tuples."""
    with tails_of(settings) as tails:
        return found_by(tails, settings, query)


EVENTS = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["START", "RUNNING", "COMPLETE", "COMPLETE", "FAIL", "ABORT"]),
    st.integers(0, 4).map(lambda number: number * 1_800),
    st.sampled_from(["x", "y"]),
    st.booleans(),
)
DONE = st.sampled_from(["file", "file some", "settle", "flush", "ask", "ask soon"])
STEPS = st.lists(st.one_of(EVENTS, EVENTS, EVENTS, DONE), max_size=16)


DONE_WELL, FAILED = ("a", "COMPLETE", 0, "x", False), ("a", "FAIL", 1_800, "y", False)


@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(steps=STEPS)
@hypothesis.example(steps=[DONE_WELL, "flush", "file", FAILED, "file"])
@hypothesis.example(steps=[DONE_WELL, "flush", FAILED, "flush"])
@hypothesis.example(steps=[DONE_WELL, "flush", "file", ("a", "COMPLETE", 1_800, "y", True)])
@hypothesis.example(steps=[DONE_WELL, "ask soon", "ask", "flush", "ask", FAILED, "ask", "file", "ask"])
@hypothesis.example(steps=[DONE_WELL, "flush", FAILED, "ask", "file some", "ask"])
def test_the_tail_has_what_the_layout_writes_later(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        given = {"home": str(home), "root": str(home), "archive_enabled": False}
        with contextlib.ExitStack() as opened:
            journal = opened.enter_context(contextlib.closing(Journal(home)))
            settings = agree(journal, Settings.load(given, origin="test"))
            layout = Layout(journal, settings, linger_s=0, gather_s=0)
            clock = ManualClock(0)
            kept = opened.enter_context(tails_of(settings, clock=clock))
            for step in steps:
                if step == "file":
                    while journal.cursor("layout") < journal.last_seq():
                        layout.step()
                elif step == "file some":
                    layout.step()
                elif step in {"settle", "flush"}:
                    journal.mark(step.encode())
                elif step in {"ask", "ask soon"}:
                    if step == "ask":
                        clock.set_ms(LATER_MS)
                    with tails_of(settings, clock=clock) as fresh:
                        assert found_by(kept, settings) == found_by(fresh, settings)
                        unsettled = [tails.read(settings).unsettled for tails in (kept, fresh)]
                        assert Counter(from_table(unsettled[0])) == Counter(from_table(unsettled[1]))
                else:
                    run, kind, second, output, is_faceted = step
                    facet = {"did": run, "filename": f"{output}.csv", "systemName": "edge"}
                    facets = {"waybill_deltaFile": facet} if is_faceted else {}
                    journal.append_many([told(run, kind, second, output=output, **facets)])
            clock.set_ms(LATER_MS)
            before = found_by(kept, settings)
            journal.mark(b"flush")
            while journal.cursor("layout") < journal.last_seq():
                layout.step()
            assert before == found_by(kept, settings) == found_in(settings)


def test_a_record_in_the_file_of_a_range_that_is_not_done_is_taken_back_too(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=True))
    journal.append_many([told("r", "COMPLETE")])
    journal.mark(b"flush")
    with tails_of(agreed) as kept:
        assert [row[7] for row in found_by(kept, agreed)] == ["COMPLETE"]
        with monkeypatch.context() as patch:
            patch.setattr(Filing, "done", lambda *_, **__: 1 / 0)  # the runner dies once it has published
            with pytest.raises(ZeroDivisionError):
                Layout(journal, agreed, linger_s=0).step()
        journal.append_many([told("r", "FAIL", 1)])
        journal.mark(b"flush")
        assert [row[7] for row in found_by(kept, agreed)] == ["ERROR"]
        assert [row[7] for row in found_in(agreed)] == ["ERROR"]


def test_what_the_layout_takes_while_the_tail_is_read_is_in_the_answer_once(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=True))
    journal.append_many([told("r", "START"), told("r", "COMPLETE", 1), told("s", "COMPLETE", 1)])
    layout = Layout(journal, agreed, linger_s=0)
    entries_after = tail.entries_after

    def taken_before(*arguments: Any) -> Iterator[Any]:  # noqa: ANN401
        journal.mark(b"flush")
        layout.step()
        return entries_after(*arguments)

    monkeypatch.setattr(tail, "entries_after", taken_before)
    assert sorted(row[0] for row in found_in(agreed)) == ["r", "s"]
    assert journal.cursor("layout") == journal.last_seq()


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("held_bytes_max", [700, 2**20])
def test_what_does_not_fit_into_memory_is_answered_from_a_temporary_file(
    journal: Journal,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    held_bytes_max: int,
    *,
    oldest_first: bool,
) -> None:
    monkeypatch.setattr(tail, "_HELD_BYTES_MAX", held_bytes_max)
    monkeypatch.setattr(stored_records, "_READ_ENTRIES", 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sent: list[dict[str, Any]] = [
        {
            "did": f"d{at:02}",
            "finalState": "COMPLETE",
            "created": 1,
            "completed": 10**12 + at * 7 % 20 * 10**6,
        }
        for at in range(20)
    ]
    for one in sent:
        journal.append(Kind.PROVENANCE, json.dumps([one]).encode())
    agreed = agree(journal, settings)
    found = [row[0] for row in found_in(agreed, Query(oldest_first=oldest_first, limit=15))]
    ordered = sorted(sent, key=lambda one: one["completed"], reverse=not oldest_first)
    assert found == [one["did"] for one in ordered][:15]
    assert not list(tmp_path.glob("*.arrow"))


def test_a_record_may_change_until_its_run_has_settled(journal: Journal, settings: Settings) -> None:
    agreed = agree(journal, settings)
    journal.append_many([told("r", "COMPLETE")])
    clock = ManualClock(0)
    with tails_of(settings, clock=clock) as tails:
        first = tails.read(agreed)
        clock.set_ms(1)
        again = tails.read(agreed)
        clock.set_ms(LATER_MS)
        settled = tails.read(agreed)
        clock.set_ms(LATER_MS + 1)
        still = tails.read(agreed)
    assert again is first
    assert still is settled
    assert [one.records.num_rows for one in (first, settled)] == [1, 1]
    assert [one.unsettled["did"].to_pylist() for one in (first, settled)] == [["r"], []]


def test_more_entries_than_are_allowed_are_an_error(journal: Journal, settings: Settings) -> None:
    agreed = agree(journal, settings)
    journal.append_many(told(f"r{at}", "COMPLETE") for at in range(3))
    with (
        tails_of(settings, entries_max=2) as tails,
        pytest.raises(BacklogError, match=r"^3 accepted entries are not in files yet"),
    ):
        tails.read(agreed)


def test_a_question_reads_only_what_came_since_the_last_one(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=True))
    layout = Layout(journal, agreed, linger_s=0)
    read: list[int] = []
    entries_after = tail.entries_after

    def noted(*arguments: Any) -> Iterator[Any]:  # noqa: ANN401
        for entries in entries_after(*arguments):
            read.extend(entry.seq for entry in entries)
            yield entries

    monkeypatch.setattr(tail, "entries_after", noted)
    with tails_of(agreed) as tails:
        for runs, expected in (("ab", [1, 2]), ("", []), ("c", [3])):
            journal.append_many(told(run, "COMPLETE") for run in runs)
            read.clear()
            assert tails.read(agreed).records.num_rows >= len(runs)
            assert read == expected
        layout.step()
        journal.append_many([told("d", "COMPLETE")])
        read.clear()
        assert sorted(tails.read(agreed).records["did"].to_pylist()) == ["a", "b", "c", "d"]
        assert read == [4]
