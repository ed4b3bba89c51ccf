"""Bodies: what a sender has to bring, and how fast, and what of it counts as memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from served import record

from waybill.collector.endpoints.batches import check_in_pieces
from waybill.collector.http import JSON, Bodies, Problem, Request
from waybill.collector.http.bodies import HELD_BYTES_MAX, PACE_BYTES
from waybill.transport import AdmissionError
from waybill.transport.admission import check_records

SIZE = 4 * PACE_BYTES
WHOLE_BYTES = 8 * 2**20
"""The largest body that is read in one go."""


class Sender:
    """Sends a body in parts, with a pause after each."""

    def __init__(self, part_bytes: int, pause_s: float) -> None:
        self._part_bytes = part_bytes
        self._pause_s = pause_s

    async def __call__(self) -> bytes:
        return b"".join([part async for part in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(SIZE // self._part_bytes):
            yield bytes(self._part_bytes)
            await asyncio.sleep(self._pause_s)


class Prompt:
    """Sends a body at once, and knows whether it was taken in parts."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.in_parts: bool | None = None

    async def __call__(self) -> bytes:
        self.in_parts = False
        return self._body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.in_parts = True
        for at in range(0, len(self._body), 2**16):
            yield self._body[at : at + 2**16]


class Promising(Prompt):
    """Promises a body and sends nothing."""

    def __init__(self) -> None:
        super().__init__(b"")

    async def __call__(self) -> bytes:
        await asyncio.Event().wait()
        return b""


def request_of(sender: Sender | Prompt, length: int = SIZE) -> Request:
    headers = {"content-type": JSON, "content-length": str(length)}
    scope: Any = SimpleNamespace(headers=headers, client="127.0.0.1:1", path="/")
    exchange: Any = sender
    return Request(scope, exchange)


async def read(sender: Sender, pace_s: float) -> bytes:
    return await Bodies(timeout_s=60, pace_s=pace_s).read(request_of(sender))


def test_a_body_that_keeps_the_pace_may_take_longer_than_one_time_of_it() -> None:
    assert len(asyncio.run(read(Sender(PACE_BYTES, 0.2), 0.4))) == SIZE


def test_a_body_that_is_slower_than_the_pace_is_let_go() -> None:
    with pytest.raises(Problem) as raised:
        asyncio.run(read(Sender(PACE_BYTES // 8, 0.1), 0.3))
    assert raised.value.status is HTTPStatus.REQUEST_TIMEOUT


async def promised(bodies: Bodies, count: int) -> list[asyncio.Task[bytes]]:
    """Have so many senders promise the largest body that is read in one go."""
    tasks = [asyncio.ensure_future(bodies.read(request_of(Promising(), WHOLE_BYTES))) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_what_is_only_promised_is_not_held_and_keeps_nobody_out() -> None:
    """Whoever comes after the promises is read in parts, and gets what he has sent."""

    async def send() -> None:
        bodies = Bodies()
        waiting = await promised(bodies, 2 * HELD_BYTES_MAX // WHOLE_BYTES)
        assert bodies.held_bytes == 0
        for size_bytes in (100, 2**20, WHOLE_BYTES):
            body = json.dumps("x" * (size_bytes - 2)).encode()
            sender = Prompt(body)
            request = request_of(sender, len(body))
            assert await bodies.read(request) == body
            assert (sender.in_parts, bodies.held_bytes) == (True, size_bytes)
            bodies.release(request)
        for task in waiting:
            task.cancel()

    asyncio.run(send())


async def _time_out(bodies: Bodies) -> None:
    for task in await promised(bodies, 4):
        with pytest.raises(Problem) as raised:
            await task
        assert raised.value.status is HTTPStatus.REQUEST_TIMEOUT


async def _break_off(bodies: Bodies) -> None:
    for _ in range(8):
        with pytest.raises(Problem) as raised:
            await bodies.read(request_of(Prompt(b"short"), WHOLE_BYTES))
        assert raised.value.status is HTTPStatus.BAD_REQUEST


async def _go_away(bodies: Bodies) -> None:
    for task in await promised(bodies, 4):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("end", [_time_out, _break_off, _go_away])
def test_a_promise_that_is_over_leaves_its_room_to_the_next_sender(
    end: Callable[[Bodies], Any],
) -> None:
    async def send() -> None:
        bodies = Bodies(timeout_s=0.05)
        await end(bodies)
        sender = Prompt(bytes(WHOLE_BYTES))
        assert len(await bodies.read(request_of(sender, WHOLE_BYTES))) == WHOLE_BYTES
        assert sender.in_parts is False

    asyncio.run(send())


PLAIN = record(filename="x" * 400)
GOOD: dict[str, dict[str, object]] = {
    "other case": {"DID": "1", "finalstate": "COMPLETE", "Created": 1, "completed": 2},
    "unknown key": record(more={"deep": [1]}),
    "quotes": record(filename='a\\"[],{}é'),
}
BAD: dict[str, dict[str, object]] = {
    "no text": record(filename=7),
    "no state": record(finalState="BANANA"),
    "too long": record(filename="x" * 70_000),
}
COUNT = 3_000
AT = st.integers(0, COUNT - 1)


@settings(max_examples=settings().max_examples // 3)
@given(
    st.dictionaries(AT, st.sampled_from(sorted(GOOD))),
    st.none() | st.tuples(AT, st.sampled_from(sorted(BAD))),
)
def test_a_large_body_is_judged_in_pieces_as_it_is_as_a_whole(
    good: dict[int, str], bad: tuple[int, str] | None
) -> None:
    records = [PLAIN] * COUNT
    for at, name in good.items():
        records[at] = GOOD[name]
    if bad is not None:
        records[bad[0]] = BAD[bad[1]]
    body = json.dumps(records, indent=1).encode()
    assert len(body) > 2**20
    try:
        kept, count = check_records(body)
    except AdmissionError:
        with pytest.raises(AdmissionError):
            check_in_pieces(body, "records", check_records)
        return
    kept_in_pieces, count_in_pieces = check_in_pieces(body, "records", check_records)
    assert (json.loads(kept_in_pieces), count_in_pieces) == (json.loads(kept), count)
