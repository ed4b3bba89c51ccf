"""What is asked of a home before its layout has written it is what the layout writes then."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import msgspec
import pytest

from waybill.exporter.layout import Layout
from waybill.exporter.query import BacklogError, Query, TailReader, scan, tail
from waybill.facets.arrow import from_table
from waybill.transport import Journal, Kind, Settings
from waybill.transport.config import agree

LATER_MS = 2**42
"""The time when every run here has settled."""


@pytest.fixture
def journal(settings: Settings) -> Iterator[Journal]:
    opened = Journal(settings.home)
    yield opened
    opened.close()


def told(
    run: str, kind: str, second: int = 0, *, output: str = "table", **facets: object
) -> tuple[Kind, bytes, str]:
    """An event of a client that knows nothing of Waybill."""
    body = {
        "eventTime": f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z",
        "eventType": kind,
        "producer": "https://example.com",
        "run": {"runId": run, "facets": facets},
        "job": {"namespace": "ns", "name": "job"},
        "outputs": [{"namespace": "db", "name": output}],
    }
    return Kind.OPENLINEAGE, json.dumps(body).encode(), ""


def found_in(settings: Settings, query: Query | None = None, *, now_ms: int = LATER_MS) -> list[Any]:
    """The records that a home finds, as tuples."""
    with contextlib.closing(TailReader(settings.home, now_ms=lambda: now_ms)) as tails:
        tables = list(scan(settings.root, query, tail=tails.read(settings)))
    return [msgspec.structs.astuple(record) for table in tables for record in from_table(table)]


EVENTS = st.tuples(
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["START", "RUNNING", "COMPLETE", "COMPLETE", "FAIL", "ABORT"]),
    st.integers(0, 4).map(lambda number: number * 1_800),
    st.sampled_from(["x", "y"]),
    st.booleans(),
)
STEPS = st.lists(st.one_of(EVENTS, EVENTS, EVENTS, st.sampled_from(["file", "settle", "flush"])), max_size=14)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(steps=STEPS)
@hypothesis.example(
    steps=[("a", "COMPLETE", 0, "x", False), "flush", "file", ("a", "FAIL", 1_800, "y", False), "file"]
)
@hypothesis.example(
    steps=[("a", "COMPLETE", 0, "x", False), "flush", ("a", "FAIL", 1_800, "y", False), "flush"]
)
@hypothesis.example(
    steps=[("a", "COMPLETE", 0, "x", False), "flush", "file", ("a", "COMPLETE", 1_800, "y", True)]
)
def test_the_tail_has_what_the_layout_writes_later(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with contextlib.closing(Journal(home)) as journal:
            given = {"home": str(home), "root": str(home), "archive_enabled": False}
            settings = agree(journal, Settings.load(given, origin="test"))
            layout = Layout(journal, settings, linger_s=0, gather_s=0)
            for step in steps:
                if step == "file":
                    while journal.cursor("layout") < journal.last_seq():
                        layout.step()
                elif step in {"settle", "flush"}:
                    journal.mark(step.encode())
                else:
                    run, kind, second, output, is_faceted = step
                    facet = {"did": run, "filename": f"{output}.csv", "systemName": "edge"}
                    facets = {"waybill_deltaFile": facet} if is_faceted else {}
                    journal.append_many([told(run, kind, second, output=output, **facets)])
            before = found_in(settings)
            journal.mark(b"flush")
            while journal.cursor("layout") < journal.last_seq():
                layout.step()
            assert before == found_in(settings)


def test_a_record_that_a_later_event_takes_back_is_in_no_answer(journal: Journal, settings: Settings) -> None:
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=True))
    journal.append_many([told("r", "COMPLETE")])
    journal.mark(b"flush")
    layout = Layout(journal, agreed, linger_s=0)
    layout.step()
    assert [row[7] for row in found_in(agreed)] == ["COMPLETE"]
    journal.append_many([told("r", "FAIL", 1)])
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
    monkeypatch.setattr(tail, "_CHUNK_ENTRIES", 3)
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
    times_ms = iter([0, 1, LATER_MS, LATER_MS + 1])
    with contextlib.closing(TailReader(settings.home, now_ms=lambda: next(times_ms))) as tails:
        first, again, settled, still = (tails.read(agreed) for _ in range(4))
    assert again is first
    assert still is settled
    assert [one.records.num_rows for one in (first, settled)] == [1, 1]
    assert [one.unsettled["did"].to_pylist() for one in (first, settled)] == [["r"], []]


def test_more_entries_than_are_allowed_are_an_error(journal: Journal, settings: Settings) -> None:
    agreed = agree(journal, settings)
    journal.append_many(told(f"r{at}", "COMPLETE") for at in range(3))
    with (
        contextlib.closing(TailReader(settings.home, entries_max=2)) as tails,
        pytest.raises(BacklogError, match=r"^3 accepted entries are not in files yet"),
    ):
        tails.read(agreed)
