"""Whether to send anything to the backend: the circuit is open while it is down, and then tries it rarely.

A refused key is not tried further: a client that keeps trying may be locked out permanently. The circuit
then stays open until `resume` is called with another key. Occasionally it lets one event
through, in case the fault was the backend's.
"""

from __future__ import annotations

from random import Random
from typing import Final

from ..backend import Answer, Verdict

BACKOFF_BASE_S: Final = 0.5
PROBE_EVERY_MAX_S: Final = 4.0
PROBE_ANSWERING_EVERY_MAX_S: Final = 3.0
"""The same for a backend that answers with errors: after many bad events in a row, probing soon finds a good
one."""
BARRED_RETRY_S: Final = 60.0
DENIED_IN_A_ROW: Final = 3
"""A backend that refuses the key with this many events in a row refuses it with all of them: a single one may
belong to a namespace that is closed to us."""
DENIED_RETRY_S: Final = 1800.0
RETRY_AFTER_MAX_S: Final = 300.0
UNWELL_IN_A_ROW: Final = 3
"""A backend that answers this many events in a row with errors is taken to be down; one that does not answer
or breaks off is after the first."""
BLINK_S: Final = 1.0
"""A single failure that took no longer than this is not reported."""


def full_jitter(rng: Random, tries: int, cap_s: float) -> float:
    """How long to wait after so many tries, in seconds: anything up to a bound that doubles each time.

    It is drawn from the whole range, so that clients that failed together do not come back together
    (M. Brooker, "Exponential Backoff And Jitter").
    """
    return rng.uniform(0.0, min(cap_s, BACKOFF_BASE_S * 2.0 ** min(tries - 1, 32)))


class Circuit:
    """Closed while the backend works; open, and due for a probe at `due_s`, while it does not."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._failures = 0
        self._denials = 0
        self._last: Answer | None = None
        self.due_s: float | None = None
        """When the next probe may be sent, on the clock of `failed`; None while the circuit is closed."""

    @property
    def problem(self) -> Answer | None:
        """The answer that keeps the circuit open; None while it is closed or may open only briefly."""
        if self._last is None or self.due_s is None:
            return None
        for_a_person = self._last.verdict in {Verdict.BARRED, Verdict.DENIED}
        return self._last if for_a_person or self._failures > 1 or self._last.elapsed_s > BLINK_S else None

    @property
    def denied(self) -> bool:
        """Whether the backend refused the key when it was last asked."""
        return self._denials > 0

    @property
    def stopped(self) -> bool:
        """Whether it did so often enough that nothing is sent until there is another key."""
        return self._denials >= DENIED_IN_A_ROW

    def passed(self) -> bool:
        """Note that the backend accepted or refused an event; returns whether that ends an outage."""
        was_open = self.due_s is not None
        self._failures, self._denials, self._last, self.due_s = 0, 0, None, None
        return was_open

    def resume(self, now_s: float) -> None:
        """Try another key at once."""
        self._denials, self.due_s = 0, now_s

    def failed(self, answer: Answer, now_s: float) -> None:
        """Note that the backend failed with an event that is not known to be bad."""
        self._last = answer
        quiet_until_s = now_s + min(answer.retry_after_s, RETRY_AFTER_MAX_S)
        if self.due_s is not None and now_s < self.due_s:
            # It was in flight when the circuit opened: connections that fail together are one failure.
            self.due_s = max(self.due_s, quiet_until_s)
            return
        self._failures += 1
        self._denials = self._denials + 1 if answer.verdict is Verdict.DENIED else 0
        is_unwell = answer.verdict is Verdict.UNWELL and answer.status is not None
        if self.due_s is None and is_unwell and self._failures < UNWELL_IN_A_ROW:
            return
        if self.stopped:
            delay_s = self._rng.uniform(DENIED_RETRY_S / 2, DENIED_RETRY_S)
        elif answer.verdict is Verdict.BARRED:
            delay_s = self._rng.uniform(BARRED_RETRY_S / 2, BARRED_RETRY_S)
        else:
            answers = is_unwell or answer.verdict is Verdict.DENIED
            cap_s = PROBE_ANSWERING_EVERY_MAX_S if answers else PROBE_EVERY_MAX_S
            delay_s = full_jitter(self._rng, self._failures, cap_s)
        self.due_s = max(now_s + delay_s, quiet_until_s)
