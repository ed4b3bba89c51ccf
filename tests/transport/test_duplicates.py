"""Files whose content the home knows: what is recorded, and what the caller is told."""

from __future__ import annotations

import gzip
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from events import members, named
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport

from waybill.facets import FINGERPRINT_FACET, FinalState
from waybill.lineage import Lineage
from waybill.transport import (
    AdmissionError,
    DuplicateFileError,
    FileContent,
    FingerprintError,
    Journal,
    JournalFullError,
    Kind,
    Settings,
    TrackedFile,
    Tracker,
)

ORDERS = "xxh3-128:b47e5f278b024151d3047ab9cc789b9d"
"""Of the bytes ``orders``."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_bytes(b"orders")
    return path


@pytest.fixture
def again(tmp_path: Path) -> Path:
    path = tmp_path / "again.csv.gz"
    path.write_bytes(gzip.compress(b"orders"))
    return path


def arrived(tracker: Tracker, path: Path, **given: Any) -> TrackedFile:  # noqa: ANN401 - those of `Tracker.file`
    return tracker.file(path=path, data_source="sftp-in", fingerprint=True, **given)


def events(home: Path) -> list[dict[str, Any]]:
    return [json.loads(entry.body) for entry in Journal(home).read(0)]


def states(home: Path) -> list[str | None]:
    return [one["run"]["facets"]["waybill_deltaFile"].get("finalState") for one in events(home)]


def alike_in(home: Path) -> list[FileContent]:
    """The files of the only content that several files of a home have."""
    (alike,) = Lineage.open(home).duplicates()
    return alike


def test_the_beginning_of_a_file_tells_its_content(tracker: Tracker, again: Path, home: Path) -> None:
    with arrived(tracker, again) as f:
        assert (f.filename, f.fingerprint, f.duplicate_of) == ("again.csv.gz", ORDERS, None)
    begun, ended = events(home)
    facet = begun["inputs"][0]["inputFacets"][FINGERPRINT_FACET]
    assert {key: value for key, value in facet.items() if not key.startswith("_")} == {
        "fingerprint": ORDERS,
        "algorithm": "xxh3-128",
        "inputBytes": again.stat().st_size,
        "contentBytes": 6,
    }
    assert not ended["inputs"][0].get("inputFacets")


@pytest.mark.parametrize("durability", ["power", "process"])
def test_the_same_content_is_found_at_once_whoever_kept_it(
    settings: Settings, path: Path, again: Path, durability: str
) -> None:
    settings = settings.with_values({"durability": durability}, "tests")
    with Tracker(settings=settings) as one, Tracker(settings=settings) as other:
        first = arrived(one, path)
        second = arrived(other, again)
        third = arrived(one, path)
        with third.branch() as branch:
            assert branch.duplicate_of == first.did
        assert (first.duplicate_of, second.duplicate_of, third.duplicate_of) == (None, first.did, first.did)
        path.write_bytes(b"other orders")
        assert arrived(one, path).duplicate_of is None


def test_a_duplicate_is_an_error_and_not_recorded_or_a_warning_or_forced_and_recorded_as_that(
    tracker: Tracker, path: Path, again: Path, home: Path
) -> None:
    with warnings.catch_warnings(action="error"):
        first = arrived(tracker, path, on_duplicate="warn")
    with pytest.raises(
        DuplicateFileError, match=r"again\.csv\.gz has the same content.*force=True"
    ) as raised:
        arrived(tracker, again, on_duplicate="raise")
    assert (raised.value.duplicate_of, raised.value.fingerprint) == (first.did, ORDERS)
    assert len(events(home)) == 1
    with pytest.warns(RuntimeWarning, match=first.did) as told:
        warned = arrived(tracker, path, on_duplicate="warn")
    assert len(told) == 1
    forced = arrived(tracker, path, on_duplicate="raise", force=True)
    assert warned.duplicate_of == forced.duplicate_of == first.did
    facets = [one["inputs"][0]["inputFacets"][FINGERPRINT_FACET] for one in events(home)]
    assert [facet.get("forced") for facet in facets] == [None, None, True]
    assert [(one.did, one.forced) for one in alike_in(home)] == [
        (first.did, False),
        (warned.did, False),
        (forced.did, True),
    ]


def test_of_files_that_begin_at_the_same_moment_exactly_one_is_first(
    tracker: Tracker, path: Path, home: Path
) -> None:
    def begin(_: int) -> str | None:
        try:
            return arrived(tracker, path, on_duplicate="raise").did
        except DuplicateFileError:
            return None

    with ThreadPoolExecutor(8) as pool:
        begun = [did for did in pool.map(begin, range(16)) if did is not None]
    assert len(begun) == 1
    told = states(home)
    assert set(told) <= {None, FinalState.FILTERED}
    assert told.count(None) == told.count(FinalState.FILTERED) + 1, "no other file is left open"


def test_a_damaged_file_is_recorded_as_failed_and_so_is_a_bomb_by_the_setting(
    settings: Settings, tracker: Tracker, again: Path, home: Path
) -> None:
    again.write_bytes(again.read_bytes()[:-1])
    with pytest.raises(FingerprintError, match="the file ends in the middle"):
        arrived(tracker, again)
    assert states(home) == [None, FinalState.ERROR]
    assert "FingerprintError" in events(home)[1]["run"]["facets"]["errorMessage"]["message"]
    again.write_bytes(gzip.compress(bytes(2**21)))
    bounded = settings.with_values({"fingerprint_max_bytes": 2**20}, "tests")
    with Tracker(settings=bounded) as other, pytest.raises(FingerprintError, match="fingerprint_max_bytes"):
        arrived(other, again)


def test_a_file_that_cannot_be_opened_has_not_arrived(tracker: Tracker, path: Path, home: Path) -> None:
    with pytest.raises(FileNotFoundError):
        arrived(tracker, path.with_name("none"))
    assert events(home) == []


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"on_duplicate": "warn"}, "on_duplicate"),
        ({"force": True}, "force"),
        ({"fingerprint": True}, "path"),
        ({"path": "a.csv", "fingerprint": True, "on_duplicate": "ignore"}, "on_duplicate"),
    ],
)
def test_options_without_effect_are_refused(tracker: Tracker, given: dict[str, Any], where: str) -> None:
    with pytest.raises(AdmissionError, match=rf"^{where}: "):
        tracker.file("a.csv", data_source="sftp-in", **given)
    with pytest.raises(AdmissionError, match=r"^filename: is missing"):
        tracker.file(data_source="sftp-in")


def test_a_client_without_a_home_records_the_content_and_knows_none(tmp_path: Path, path: Path) -> None:
    client = OpenLineageClient(transport=FileTransport(FileConfig(str(tmp_path / "events"), append=True)))
    tracker = Tracker(client, system_name="tests")
    assert [arrived(tracker, path).duplicate_of for _ in range(2)] == [None, None]
    assert (tmp_path / "events").read_text(encoding="utf-8").count(ORDERS) == 2
    with pytest.raises(AdmissionError, match="keeps no events in a home"):
        arrived(tracker, path, on_duplicate="warn")


# -- the journal ---------------------------------------------------------------------------------------------


def told(did: str, content: str = ORDERS) -> bytes:
    """The event of another program that tells the content of a run's only input."""
    facet = {FINGERPRINT_FACET: {"fingerprint": content, "inputBytes": 6}}
    told = members(did, job="edge/load") | {"inputs": [named("edge/in") | {"inputFacets": facet}]}
    return msgspec.json.encode(told)


def test_the_event_of_any_program_counts_and_a_repeat_does_not_count_again(
    home: Path, journal: Journal
) -> None:
    for did in ("a", "b", "a"):
        journal.append(Kind.OPENLINEAGE, told(did), "edge")
    first = journal.first_with(ORDERS)
    assert first is not None
    assert (first.did, first.system_name, first.filename, first.input_bytes) == ("a", "edge", "", 6)
    assert [one.did for one in alike_in(home)] == ["a", "b"]
    assert journal.first_with("xxh3-128:" + "0" * 32) is None


def test_a_content_is_known_after_its_entry_is_deleted_until_it_is_forgotten(journal: Journal) -> None:
    for did in ("a", "b", "c"):
        journal.append(Kind.OPENLINEAGE, told(did), "edge")
    assert journal.prune(1, 2**50) == 1
    first = journal.first_with(ORDERS)
    assert first is not None
    assert first.did == "a"
    journal.forget_contents(2**50)
    assert journal.first_with(ORDERS) is None


def test_what_was_not_kept_is_not_known(home: Path) -> None:
    journal = Journal(home, max_bytes=1)
    with pytest.raises(JournalFullError):
        journal.append(Kind.OPENLINEAGE, told("a"), "edge")
    assert journal.first_with(ORDERS) is None
