"""Rows that decide which dataset is used: one run names the datasets and counts the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from events import events_in

from waybill.transport import AdmissionError, Tracker
from waybill.transport.tracker.rows import NAMED_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.transport import Settings

URLS = ["https://a.example/x", "https://a.example/y", "https://a.example/x"]


def counts_of(event: dict[str, Any]) -> dict[str, str]:
    tags = event["run"]["facets"]["tags"]["tags"]
    return {tag["key"]: tag["value"] for tag in tags if tag["source"] == "waybill"}


def test_all_rows_are_one_run_that_counts_them_by_dataset(tracker: Tracker, settings: Settings) -> None:
    seen = list(tracker.rows(URLS, dataset=lambda url: url, job="crawl"))
    assert seen == URLS
    start, end = events_in(settings.home)
    assert (start["eventType"], end["eventType"], end["job"]["name"]) == ("START", "COMPLETE", "crawl")
    rows = {one["name"]: one["inputFacets"]["inputStatistics"]["rowCount"] for one in end["inputs"]}
    assert (rows, end["outputs"]) == ({"/x": 2, "/y": 1}, [])
    assert counts_of(end) == {"rows": "3", "rows_looked_at": "3", "datasets": "2"}


def test_a_sample_names_some_datasets_and_counts_all_rows(tracker: Tracker, settings: Settings) -> None:
    looked_at: list[int] = []

    def table(number: int) -> str | None:
        looked_at.append(number)
        return f"s3://lake/{number}" if number else None

    assert len(list(tracker.rows(range(10), dataset=table, one_in=4, written=True))) == 10
    assert looked_at == [0, 4, 8]
    end = events_in(settings.home)[-1]
    assert [one["name"] for one in end["outputs"]] == ["4", "8"]
    assert counts_of(end) == {"rows": "10", "rows_looked_at": "3", "datasets": "2"}


def test_only_the_most_used_datasets_are_named_and_all_are_counted(
    tracker: Tracker, settings: Settings
) -> None:
    names = [f"s3://lake/{number}" for number in range(NAMED_MAX + 5)]
    for _ in tracker.rows([*names, names[-1]], dataset=lambda name: name):
        pass
    end = events_in(settings.home)[-1]
    assert (len(end["inputs"]), end["inputs"][0]["name"]) == (NAMED_MAX, str(NAMED_MAX + 4))
    assert counts_of(end)["datasets"] == str(NAMED_MAX + 5)


def test_a_row_is_a_run_of_its_own_only_if_that_is_asked(tracker: Tracker, settings: Settings) -> None:
    list(tracker.rows(URLS[:2], dataset=lambda url: url, job="crawl", run_each=True))
    told = events_in(settings.home)
    above = told[0]["run"]["runId"]
    own = [event for event in told if event["run"]["runId"] != above]
    assert [event["eventType"] for event in own] == ["START", "COMPLETE"] * 2
    assert {event["run"]["facets"]["parent"]["run"]["runId"] for event in own} == {above}


def test_a_loop_that_ends_early_is_aborted_and_one_that_fails_within_its_block_has_failed(
    tracker: Tracker, settings: Settings
) -> None:
    for _ in tracker.rows(URLS, dataset=lambda url: url):
        break
    assert events_in(settings.home)[-1]["eventType"] == "ABORT"
    with pytest.raises(KeyError), tracker.rows(URLS, dataset=lambda url: url) as rows:
        for _ in rows:
            raise KeyError("no such page")
    end = events_in(settings.home)[-1]
    assert (end["eventType"], len(end["inputs"])) == ("FAIL", 1)
    assert "no such page" in end["run"]["facets"]["errorMessage"]["message"]

    def broken() -> Iterator[str]:
        yield URLS[0]
        raise OSError("connection lost")

    with pytest.raises(OSError, match="lost"):
        list(tracker.rows(broken(), dataset=lambda url: url))
    assert events_in(settings.home)[-1]["eventType"] == "FAIL"
    with tracker.rows(URLS, dataset=lambda url: url):
        pass
    assert events_in(settings.home)[-1]["eventType"] == "ABORT"


def test_a_row_whose_dataset_has_no_name_fails_the_loop_with_the_reason(tracker: Tracker) -> None:
    with pytest.raises(AdmissionError, match="give a path, a URI, or a namespace and a name"):
        list(tracker.rows([("", "")], dataset=lambda pair: pair))


def test_a_sample_of_none_is_refused(tracker: Tracker) -> None:
    with pytest.raises(AdmissionError, match="one_in: is 0; give 1 for every row, or more"):
        tracker.rows(URLS, dataset=lambda url: url, one_in=0)
