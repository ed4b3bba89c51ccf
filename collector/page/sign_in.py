"""Signing in: which addresses have sent too many wrong keys, and where a browser goes on to."""

from __future__ import annotations

import re
from collections import OrderedDict
from http import HTTPStatus
from typing import Final

from waybill.transport.clock import SYSTEM_CLOCK, Clock

from ..http import Problem

TRIES_MAX: Final = 10
"""So many wrong keys may come from one address within `TRIES_WITHIN_S`."""

TRIES_WITHIN_S: Final = 60.0

ADDRESSES_MAX: Final = 1_024
"""Of so many addresses they are counted; of further ones, the one that was wrong longest ago is forgotten."""

_OWN_PATH: Final = re.compile(r"/(?![/\\])[^\x00-\x20\\]*")


def own_path(text: str) -> str:
    """A path of this page, to go on to; the first view for anything else."""
    return text if _OWN_PATH.fullmatch(text) else "/"


class Tries:
    """Counts the wrong keys of each address, of a bounded number of addresses."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise a `Problem` if an address has sent too many wrong keys."""
        since_s, count = self._wrong.get(address, (0.0, 0))
        left_s = since_s + TRIES_WITHIN_S - self._clock.monotonic_s()
        if count >= TRIES_MAX and left_s > 0:
            headers = [("retry-after", str(round(left_s) + 1))]
            detail = f"there were {TRIES_MAX} wrong keys from your address; try again in {left_s:.0f} s"
            reason = "too many wrong keys"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=headers, reason=reason)

    def note(self, address: str) -> None:
        """Note a wrong key."""
        since_s, count = self._wrong.pop(address, (0.0, 0))
        if since_s + TRIES_WITHIN_S <= self._clock.monotonic_s():
            since_s, count = self._clock.monotonic_s(), 0
        self._wrong[address] = since_s, count + 1
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)
