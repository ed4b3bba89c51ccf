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
from waybill.collector.intake import Acceptor
from waybill.collector.intake.acceptor import REJECTING_MAX
from waybill.collector.metrics import Metrics
from waybill.transport import Journal, Kind, Rejects

EVENT = Kind.OPENLINEAGE


Headers = tuple[tuple[str, str], ...]
_Kept = TypeVar("_Kept")


def seq_of(headers: Headers) -> int:
    """The number in a receipt."""
    return int(dict(headers)["waybill-receipt"].rpartition("-")[2])


class Disk:
    """A journal on a disk that stands still when it is told to."""

    def __init__(self, folder: Path) -> None:
        self._stop = folder / "stop"
        self._system = SlowSqlite(self._stop)
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

    def wait_until_idle(self) -> None:
        while self.journal.committing_s:
            time.sleep(POLL_S)

    def go_on(self) -> None:
        self._stop.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.journal.close()


def acceptor(disk: Disk, *, waiting_max: int = 100, stalled_s: float = float("inf")) -> Acceptor:
    rejects, metrics = Rejects(disk.journal), Metrics()
    return Acceptor(
        disk.journal, rejects, metrics, system_name="tests", waiting_max=waiting_max, stalled_s=stalled_s
    )


def test_no_more_requests_wait_for_the_journal_than_may(disk: Disk) -> None:
    waiting_max = 300

    async def ask() -> None:
        intake = acceptor(disk, waiting_max=waiting_max)

        def keep(number: int) -> Awaitable[Headers]:
            return intake.keep(EVENT, [b"%d" % number], 1)

        first = await disk.stand_still(lambda: keep(0))
        others = [asyncio.ensure_future(keep(number)) for number in range(1, waiting_max)]
        await asyncio.sleep(0)
        for _ in range(3):
            with pytest.raises(Problem, match="cannot keep up") as refused:
                await keep(-1)
            assert (refused.value.status, dict(refused.value.headers)["retry-after"]) == (503, "2")
        disk.go_on()
        answers = [await first, *await asyncio.gather(*others)]
        assert sorted(map(seq_of, answers)) == list(range(1, waiting_max + 1))
        assert seq_of(await keep(waiting_max)) == waiting_max + 1

    asyncio.run(ask())
    kept = {int(entry.body) for entry in disk.journal.read(0, limit=10_000)}
    assert kept == set(range(waiting_max + 1))


def test_while_a_commit_takes_too_long_nobody_else_is_let_in(disk: Disk) -> None:
    async def ask() -> None:
        intake = acceptor(disk, stalled_s=0.1)
        first = await disk.stand_still(lambda: intake.keep(EVENT, [b"first"], 1))
        await asyncio.sleep(0.2)
        with pytest.raises(Problem, match="cannot keep up") as refused:
            await intake.keep(EVENT, [b"refused"], 1)
        assert refused.value.status == 503
        disk.go_on()
        await first
        await asyncio.to_thread(disk.wait_until_idle)
        await intake.keep(EVENT, [b"after"], 1)

    asyncio.run(ask())
    assert [entry.body for entry in disk.journal.read(0)] == [b"first", b"after"]


def test_a_request_that_is_cancelled_costs_the_others_nothing(disk: Disk) -> None:
    async def ask() -> None:
        intake = acceptor(disk)
        first = await disk.stand_still(lambda: intake.keep(EVENT, [b"first"], 1))
        others = [asyncio.ensure_future(intake.keep(EVENT, [b"%d" % at], 1)) for at in range(3)]
        await asyncio.sleep(0)
        others[1].cancel()
        disk.go_on()
        answers = await asyncio.gather(first, *others, return_exceptions=True)
        assert [isinstance(answer, asyncio.CancelledError) for answer in answers] == [
            False,
            False,
            True,
            False,
        ]

    asyncio.run(ask())


def test_no_more_requests_wait_for_what_was_refused_of_them_than_may(disk: Disk) -> None:
    rejects, metrics = Rejects(disk.journal), Metrics()

    async def ask() -> None:
        keeping = Acceptor(disk.journal, rejects, metrics, system_name="tests")

        def refuse(number: int) -> Awaitable[None]:
            return keeping.reject(EVENT, [(b"%d" % number, "why")])

        first = await disk.stand_still(lambda: refuse(0))
        others = [asyncio.ensure_future(refuse(number)) for number in range(1, REJECTING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Problem, match="rejects arrive faster") as refused:
            await refuse(-1)
        assert refused.value.status == 503
        disk.go_on()
        await asyncio.gather(first, *others)
        await refuse(REJECTING_MAX)

    asyncio.run(ask())
    assert {rejects.body(one.id) for one in rejects.all()} == {b"%d" % at for at in range(REJECTING_MAX + 1)}
    assert f'waybill_rejected_total{{kind="openlineage"}} {REJECTING_MAX + 1}' in metrics.text()
