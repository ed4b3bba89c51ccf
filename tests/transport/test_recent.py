"""Projections that follow a journal share its recent entries, each decoded once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from events import event

from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path)
    journal.append_many((Kind.OPENLINEAGE, event("r", "START", number=at), "") for at in range(5))
    return journal


def test_an_event_is_decoded_once_for_all_projections(journal: Journal) -> None:
    first, second = journal.feed("archive", 0), journal.feed("layout", 2)
    assert [entry.seq for entry in second] == [3, 4, 5]
    assert all(one.event is other.event is not None for one, other in zip(first[2:], second, strict=True))


@pytest.mark.parametrize(("limit", "max_bytes"), [(2, 2**20), (1000, 1), (1000, 500), (3, 500)])
def test_limits_count_for_recent_entries_as_for_others(journal: Journal, limit: int, max_bytes: int) -> None:
    wanted = journal.read(0, limit=limit, max_bytes=max_bytes)
    for known in (1, 3, 5):
        journal.feed("archive", 0, limit=known)
        assert journal.feed("layout", 0, limit=limit, max_bytes=max_bytes) == wanted


def test_entries_that_were_removed_are_not_fed_again(journal: Journal) -> None:
    journal.feed("archive", 0)
    journal.prune(3, 2**62)
    assert [entry.seq for entry in journal.feed("layout", 0)] == [4, 5]


def test_what_cannot_be_read_is_no_event(journal: Journal) -> None:
    journal.append(Kind.OPENLINEAGE, b'{"run": 5}')
    journal.append(Kind.PROVENANCE, b"[]")
    assert [entry.event for entry in journal.feed("archive", 5)] == [None, None]
