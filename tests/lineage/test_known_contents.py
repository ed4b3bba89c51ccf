"""The contents that a home knows from its index, after the journal has let them go."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import apsw
import pytest

from waybill.lineage import Lineage
from waybill.lineage.correlation import INDEX_NAME, Correlation
from waybill.transport import Journal, JournalError, Settings, TrackedFile, Tracker
from waybill.transport.known_contents import first_with, repeated_contents

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORDERS = "xxh3-128:b47e5f278b024151d3047ab9cc789b9d"
"""Of the bytes ``orders``."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_bytes(b"orders")
    return path


@pytest.fixture
def tracker(settings: Settings) -> Iterator[Tracker]:
    with Tracker(settings=settings) as tracker:
        yield tracker


@pytest.fixture
def journal(settings: Settings) -> Iterator[Journal]:
    with contextlib.closing(Journal(settings.home)) as journal:
        yield journal


def index(journal: Journal, settings: Settings) -> None:
    """Bring the index of a home up to date."""
    with contextlib.closing(Correlation(journal, settings, linger_s=0)) as projection:
        while projection.step().applied:
            pass


def arrived(tracker: Tracker, path: Path, *, force: bool = False) -> TrackedFile:
    return tracker.file(path=path, data_source="in", fingerprint=True, force=force)


def test_the_index_has_fingerprint_and_size_and_whether_a_file_was_forced(
    settings: Settings, tracker: Tracker, journal: Journal, path: Path
) -> None:
    with arrived(tracker, path) as first, arrived(tracker, path, force=True) as forced:
        pass
    tracker.file("other.csv", data_source="in")
    index(journal, settings)
    query = "SELECT id_event, input_size, forced FROM correlation_event WHERE fingerprint = ?"
    with contextlib.closing(apsw.Connection(str(settings.home / INDEX_NAME))) as connection:
        assert sorted(connection.execute(query, (ORDERS,)).fetchall()) == sorted(
            [(first.did, 6, 0), (forced.did, 6, 1)]
        )
        [(_, _, _, plan), *_] = connection.execute(f"EXPLAIN QUERY PLAN {query}", (ORDERS,)).fetchall()
        assert "files_fingerprint" in str(plan)


def test_a_content_that_has_left_the_journal_is_known_from_the_index(
    settings: Settings, tracker: Tracker, journal: Journal, path: Path
) -> None:
    first = arrived(tracker, path)
    tracker.file("other.csv", data_source="in")
    index(journal, settings)
    assert journal.prune(1, 2**50) == 1
    assert journal.first_with(ORDERS) is None
    second = arrived(tracker, path)
    assert second.duplicate_of == first.did
    for is_indexed in (False, True):
        [[one, other]] = repeated_contents(journal)
        assert (one.did, one.filename, one.system_name, one.input_bytes) == (
            first.did,
            "orders.csv",
            "tests",
            6,
        )
        assert (other.did, other.filename) == (second.did, "orders.csv")
        assert Lineage.open(settings.home).duplicates() == [[one, other]]
        if not is_indexed:
            index(journal, settings)
    assert arrived(tracker, path).duplicate_of == first.did


def test_a_file_is_no_duplicate_of_itself_in_the_index(
    settings: Settings, tracker: Tracker, journal: Journal, path: Path
) -> None:
    first = arrived(tracker, path)
    index(journal, settings)
    found = first_with(journal, ORDERS)
    assert found is not None
    assert (found.did, found.filename) == (first.did, "orders.csv")
    assert list(repeated_contents(journal)) == []


@pytest.mark.parametrize("damaged", [b"", b"no database" * 100])
def test_an_index_that_cannot_be_read_holds_up_no_pipeline_and_is_told(
    settings: Settings, tracker: Tracker, journal: Journal, path: Path, damaged: bytes
) -> None:
    (settings.home / INDEX_NAME).write_bytes(damaged)
    first = arrived(tracker, path)
    assert arrived(tracker, path).duplicate_of == first.did
    with pytest.raises(JournalError, match=r"index\.db cannot be read"):
        list(repeated_contents(journal))
