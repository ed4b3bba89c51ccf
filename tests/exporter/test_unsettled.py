"""The records of ended runs that are not filed, while others write and when memory is short."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from waybill.exporter.layout import Layout
from waybill.exporter.query import Query, answer, read_unsettled, unsettled
from waybill.transport import Journal, Kind, Settings
from waybill.transport.config import agree

LATER_MS = 2**42
"""The time when every run here has settled."""


@pytest.fixture
def journal(settings: Settings) -> Iterator[Journal]:
    opened = Journal(settings.home)
    yield opened
    opened.close()


def told(run: str, kind: str, second: int = 0) -> tuple[Kind, bytes, str]:
    """An event of a client that knows nothing of Waybill."""
    body = {
        "eventTime": f"2026-01-01T00:00:{second:02}Z",
        "eventType": kind,
        "producer": "https://example.com",
        "run": {"runId": run},
        "job": {"namespace": "ns", "name": "job"},
        "outputs": [{"namespace": "db", "name": "table"}],
    }
    return Kind.OPENLINEAGE, json.dumps(body).encode(), ""


def test_a_run_that_the_layout_takes_while_it_is_asked_for_is_in_the_answer(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=True))
    journal.append_many([told("r", "START"), told("r", "COMPLETE", 1)])
    layout = Layout(journal, agreed, linger_s=0)
    cursor = Journal.cursor

    def taken_before(self: Journal, projection: str) -> int:
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "cursor", cursor)
            layout.step()
        return cursor(self, projection)

    monkeypatch.setattr(Journal, "cursor", taken_before)
    found = read_unsettled(journal, agreed, Query(), now_ms=LATER_MS)
    assert ([one.did for one in found.settled], found.is_whole) == (["r"], True)


def test_a_run_that_is_read_in_part_is_not_shown_and_that_is_said(
    journal: Journal, settings: Settings
) -> None:
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=False))
    ended = told("r", "COMPLETE"), told("r", "FAIL", 1)
    journal.append_many(ended)
    whole = read_unsettled(journal, agreed, Query(), now_ms=LATER_MS)
    assert ([one.final_state for one in whole.settled], whole.is_whole) == (["ERROR"], True)
    room_bytes = len(ended[0][1]) - 1
    assert read_unsettled(journal, agreed, Query(), now_ms=LATER_MS, max_bytes=room_bytes) == ([], [], False)


def test_runs_that_are_due_are_shown_while_there_is_room_and_those_not_asked_for_take_none(
    journal: Journal, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsettled, "_SIFTED_TOGETHER", 1)
    agreed = agree(journal, msgspec.structs.replace(settings, provenance_enabled=True))
    journal.append_many(told(f"r{at}", "COMPLETE") for at in range(3))
    Layout(journal, agreed, linger_s=0).step()
    for query, count, is_whole in (
        (Query(), 1, False),
        (Query(did="r2"), 1, True),
        (Query(did="x"), 0, True),
    ):
        found = read_unsettled(journal, agreed, query, now_ms=LATER_MS, max_bytes=1)
        assert (len(found.settled), found.open, found.is_whole) == (count, [], is_whole)


@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("backlog_bytes_max", [700, 2_000, 2**20])
def test_what_does_not_fit_into_memory_is_read_a_span_at_a_time_in_either_order(
    journal: Journal, settings: Settings, backlog_bytes_max: int, *, oldest_first: bool
) -> None:
    sent: list[dict[str, Any]] = [
        {"did": f"d{at:02}", "finalState": "COMPLETE", "created": 1, "completed": 10**12 + at * 7 % 20}
        for at in range(20)
    ]
    journal.append(Kind.PROVENANCE, json.dumps(sent).encode())
    asked = Query(oldest_first=oldest_first, limit=15)
    tables = answer(journal, agree(journal, settings), asked, backlog_bytes_max=backlog_bytes_max)
    found = [did for table in tables for did in table["did"].to_pylist()]
    ordered = sorted(sent, key=lambda one: one["completed"], reverse=not oldest_first)
    assert found == [one["did"] for one in ordered][:15]
