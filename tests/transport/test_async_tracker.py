"""The Tracker in an event loop."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest
from slow_disk import SlowSqlite

from waybill.transport import (
    AsyncTrackedFile,
    AsyncTracker,
    Journal,
    Kind,
    Settings,
    TrackedFile,
    Tracker,
    TrackerStateError,
)

_T = TypeVar("_T")


def settings_of(home: Path) -> Settings:
    return Settings.load({"home": home, "runner": "none", "system_name": "s"}, env={}, cwd=home.parent)


def told(home: Path) -> list[tuple[str, str | None, str | None]]:
    """The file name, sink and final state of each event."""
    files = [
        json.loads(entry.body)["run"]["facets"]["waybill_deltaFile"]
        for entry in Journal(home).read(0)
        if entry.kind is Kind.OPENLINEAGE
    ]
    return [(file["filename"], file.get("dataSink"), file.get("finalState")) for file in files]


@pytest.fixture
def stop(tmp_path: Path) -> Iterator[Path]:
    """While this file is there, no disk fsyncs anything."""
    disk = SlowSqlite(tmp_path / "stop")
    apsw.set_default_vfs(disk.name)
    yield tmp_path / "stop"
    apsw.set_default_vfs("unix")


def test_the_loop_goes_on_while_a_slow_disk_keeps_an_event_and_a_cancelled_task_tells_its_end_afterwards(
    home: Path, stop: Path
) -> None:
    waiting = stop.with_suffix(".waiting")
    hold, release, is_held, forget = stop.touch, stop.unlink, waiting.exists, waiting.unlink

    async def until_it_waits(work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        hold()
        task = asyncio.create_task(work)
        while not is_held():  # noqa: ASYNC110 - the disk tells it by a file
            await asyncio.sleep(0.01)
        return task

    async def go_on(task: asyncio.Task[_T]) -> _T:
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not task.done()
        release()
        try:
            return await task
        finally:
            forget()

    async def leave(file: AsyncTrackedFile) -> None:
        async with file:
            await file.egress("lake")

    async def pipeline() -> None:
        async with AsyncTracker(settings=settings_of(home)) as tracker:
            file = await go_on(await until_it_waits(tracker.file("a.csv", data_source="in")))
            task = await until_it_waits(leave(file))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await go_on(task)

    asyncio.run(pipeline())
    assert told(home) == [("a.csv", None, None), ("a.csv", "lake", "COMPLETE"), ("a.csv", None, "CANCELLED")]


def test_it_tells_what_the_tracker_tells(home: Path) -> None:
    async def pipeline() -> None:
        async with AsyncTracker(settings=settings_of(home)) as tracker:
            async with await tracker.file("year.csv", data_source="in", annotations={"a": 1}) as year:
                with year.transform("enrich"):
                    year.annotate(b=2)
                one, two, three = await year.split(["1.csv", "2.csv", "3.csv"])
                assert one.parent_did == year.did
            async with one:
                await one.filter("empty")
            async with two:
                await two.error("torn")
                with pytest.raises(TrackerStateError):
                    await two.egress("lake")
            async with await tracker.join([one.did, two.did], "12.csv", data_source="in") as joined:
                assert joined.parent_dids == (one.did, two.did)
            with pytest.raises(ValueError, match="broken"):
                async with three, three.branch() as path:
                    await path.egress("lake", dataset="s3://bucket/lake", schema={"a": "INT"})
                    raise ValueError("broken")

    asyncio.run(pipeline())
    begun = [(name, None, None) for name in ("year.csv", "1.csv", "2.csv", "3.csv")]
    assert told(home) == [
        *begun,
        ("year.csv", None, "SPLIT"),
        ("1.csv", None, "FILTERED"),
        ("2.csv", None, "ERROR"),
        ("12.csv", None, None),
        ("12.csv", None, "COMPLETE"),
        ("3.csv", "lake", "COMPLETE"),
        ("3.csv", None, "ERROR"),
    ]
    events = [entry.body for entry in Journal(home).read(0) if entry.kind is Kind.OPENLINEAGE]
    (lake,) = [output for body in events for output in json.loads(body)["outputs"]][:1]
    assert (lake["namespace"], lake["name"]) == ("s3://bucket", "lake")
    assert lake["facets"]["schema"]["fields"] == [{"name": "a", "type": "INT", "fields": []}]


@pytest.mark.parametrize(("kind", "awaited"), [(Tracker, AsyncTracker), (TrackedFile, AsyncTrackedFile)])
def test_it_has_the_calls_and_the_facts_of_the_tracker_with_the_same_parameters(
    kind: type, awaited: type
) -> None:
    def members(of: type) -> dict[str, object]:
        public = {name: one for name, one in inspect.getmembers(of) if not name.startswith("_")}
        return {
            name: tuple(inspect.signature(one).parameters.values()) if callable(one) else "a fact"
            for name, one in public.items()
        }

    closed_by_its_block = {"close"}
    assert members(awaited) == {
        name: one for name, one in members(kind).items() if name not in closed_by_its_block
    }
    assert inspect.signature(AsyncTracker) == inspect.signature(Tracker)
