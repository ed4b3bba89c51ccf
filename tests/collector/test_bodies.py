"""Bodies: what a sender has to bring, and how fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

from waybill.collector.http import JSON, Bodies, Problem, Request
from waybill.collector.http.bodies import PACE_BYTES

SIZE = 4 * PACE_BYTES


class Sender:
    """Sends a body in parts, with a pause after each."""

    def __init__(self, part_bytes: int, pause_s: float) -> None:
        self._part_bytes = part_bytes
        self._pause_s = pause_s

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for _ in range(SIZE // self._part_bytes):
            yield bytes(self._part_bytes)
            await asyncio.sleep(self._pause_s)


def request_of(sender: Sender) -> Request:
    scope: Any = SimpleNamespace(headers={"content-type": JSON, "content-length": str(SIZE)})
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
