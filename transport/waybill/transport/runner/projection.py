"""What a projection is: something that reads the journal in order and keeps an output up to date.

Packages offer theirs under the entry-point group ``waybill.projections``: a name and a callable
``(journal, settings) -> Projection | Sequence[Projection] | None``, none where the settings ask for none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from waybill.transport.config import Settings
    from waybill.transport.journal import Journal

PROJECTIONS_GROUP = "waybill.projections"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one step of a projection came to.

    Attributes:
        applied: how much was done: entries the cursor moved over, or files made. Nothing done is 0.
        retry_s: call again after this many seconds even if no entry arrives; None: only when one does.
        problem: why it cannot go on, in one sentence; None when all is well.
        to_correct: the setting that somebody has to correct for it to go on; None: it will by itself.
    """

    applied: int = 0
    retry_s: float | None = None
    problem: str | None = None
    to_correct: str | None = None


@runtime_checkable
class Projection(Protocol):
    """A consumer of the journal with a durable cursor of its own.

    A projection pulls entries, applies them idempotently, then moves its cursor; the output is a pure
    function of the journal, so that it may crash, be repeated, or be deleted and rebuilt. One thread calls it
    at a time.
    """

    name: str
    stores: bool
    """Whether its output keeps what the entries said, so that the journal may let go of them."""

    def step(self) -> Step:
        """Do one bounded piece of work. Waiting is for the caller: see `Step.retry_s`."""

    def pending(self) -> int:
        """How many entries it has not dealt with yet."""

    def finish(self) -> None:
        """Leave things tidy: the runner is about to end because nothing is left to do."""

    def close(self) -> None:
        """Let go of what it holds."""


class OpenProjection(Protocol):
    """The callable behind an entry point of the group ``waybill.projections``."""

    def __call__(self, journal: Journal, settings: Settings) -> Projection | Sequence[Projection] | None:
        """The projections that the settings ask for."""
