"""What waits for the disk has bounds, and goes on by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from slow_disk import POLL_S, SlowSqlite

from waybill.collector.http import Problem
from waybill.collector.intake import Acceptor, CommitQueue, Rejects
from waybill.collector.intake.acceptor import REJECTING_MAX
from waybill.collector.intake.commit_queue import WAITING_MAX
from waybill.collector.metrics import Metrics
from waybill.transport import Journal, Kind

EVENT = Kind.OPENLINEAGE


_Kept = TypeVar("_Kept")


class Disk:
    """A journal on a disk that stands still when it is told to."""

    def __init__(self, folder: Path) -> None:
        self._stop = folder / "stop"
        self._system = SlowSqlite(self._stop, default=False)
        self.journal = Journal(folder / "home", vfs="slow")

    async def stand_still(self, begin: Callable[[], Awaitable[_Kept]]) -> asyncio.Task[_Kept]:
        """Let somebody wait for it."""

        async def wait() -> _Kept:
            return await begin()

        self._stop.touch()
        task = asyncio.create_task(wait())
        await asyncio.to_thread(self._wait_for_somebody)
        return task

    def _wait_for_somebody(self) -> None:
        while not self._stop.with_suffix(".waiting").exists():
            time.sleep(POLL_S)

    def go_on(self) -> None:
        self._stop.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.journal.close()


def test_no_more_requests_wait_for_the_journal_than_may(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    # How long the commit takes is not what is asked here.
    monkeypatch.setattr("waybill.collector.intake.commit_queue.STALLED_S", float("inf"))

    async def ask() -> None:
        intake = CommitQueue(disk.journal, lambda: None)

        def keep(number: int) -> Awaitable[list[int]]:
            return intake.keep([(EVENT, b"%d" % number, "")])

        first = await disk.stand_still(lambda: keep(0))
        others = [asyncio.ensure_future(keep(number)) for number in range(1, WAITING_MAX)]
        await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(Problem, match="does not keep up") as refused:
                await keep(-1)
            assert (refused.value.status, dict(refused.value.headers)["retry-after"]) == (503, "2")
        disk.go_on()
        answers = [await first, *await asyncio.gather(*others)]
        assert sorted(seq for seqs in answers for seq in seqs) == list(range(1, WAITING_MAX + 1))
        assert await keep(WAITING_MAX) == [WAITING_MAX + 1]
        intake.close()

    asyncio.run(ask())
    kept = {int(entry.body) for entry in disk.journal.read(0, limit=10_000)}
    assert kept == set(range(WAITING_MAX + 1))


def test_no_more_requests_wait_for_what_was_refused_of_them_than_may(disk: Disk) -> None:
    rejects, metrics = Rejects(disk.journal), Metrics()

    async def ask() -> None:
        intake = CommitQueue(disk.journal, lambda: None)
        keeping = Acceptor(intake, rejects, metrics, node="node", system_name="tests")

        def refuse(number: int) -> Awaitable[None]:
            return keeping.reject(EVENT, [(b"%d" % number, "why")])

        first = await disk.stand_still(lambda: refuse(0))
        others = [asyncio.ensure_future(refuse(number)) for number in range(1, REJECTING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="as fast as it is sent") as refused:
            await refuse(-1)
        assert refused.value.status == 503
        disk.go_on()
        await asyncio.gather(first, *others)
        await refuse(REJECTING_MAX)
        intake.close()

    asyncio.run(ask())
    assert {rejects.body(one.id) for one in rejects.all()} == {b"%d" % at for at in range(REJECTING_MAX + 1)}
    assert f'waybill_rejected_total{{kind="openlineage"}} {REJECTING_MAX + 1}' in metrics.text()
