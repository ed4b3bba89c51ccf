"""Each call of a tracked function is a run, sync or async."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from events import events_in

import waybill

if TYPE_CHECKING:
    from waybill.transport import Settings, Tracker


def test_a_call_is_a_run_with_the_datasets_and_the_events_id(tracker: Tracker, settings: Settings) -> None:
    @waybill.tracked(
        inputs=lambda event: [event["source"]],
        outputs=["s3://lake/thumbnails"],
        event_id=lambda event: event["id"],
        tracker=tracker,
    )
    def handle(event: dict[str, str]) -> str:
        """Make a thumbnail."""
        return event["id"]

    assert (handle({"source": "s3://in/a.png", "id": "77"}), handle.__doc__) == ("77", "Make a thumbnail.")
    start, end = events_in(settings.home)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["job"]["name"].endswith(".handle")
    assert end["run"]["facets"]["tags"]["tags"][0]["value"] == "77"
    assert [(one["namespace"], one["name"]) for one in (*end["inputs"], *end["outputs"])] == [
        ("s3://in", "a.png"),
        ("s3://lake", "thumbnails"),
    ]


def test_an_error_reaches_the_caller_and_the_run(tracker: Tracker, settings: Settings) -> None:
    @waybill.tracked(job="fails", tracker=tracker)
    def fail() -> None:
        raise ValueError("no header")

    with pytest.raises(ValueError, match="no header"):
        fail()
    end = events_in(settings.home)[-1]
    assert (end["eventType"], end["job"]["name"]) == ("FAIL", "fails")
    assert end["run"]["facets"]["errorMessage"]["message"] == "ValueError: no header"


def test_a_coroutine_is_a_run_until_it_is_done_or_cancelled(tracker: Tracker, settings: Settings) -> None:
    @waybill.tracked(outputs=lambda result, _: [f"s3://lake/{result}"], job="copy", tracker=tracker)
    async def copy(name: str) -> str:
        await asyncio.sleep(60 if name == "slow" else 0)
        return name.upper()

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(copy("slow"), 0.2)

    assert asyncio.run(copy("a")) == "A"
    asyncio.run(cancelled())
    ends = [event for event in events_in(settings.home) if event["eventType"] != "START"]
    assert [end["eventType"] for end in ends] == ["COMPLETE", "ABORT"]
    assert ends[0]["outputs"][0]["name"] == "A"
