"""The view of the service levels: what was measured, what is promised, and how each went lately."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from waybill.lineage.graph import Node, NodeKind
from waybill.lineage.levels import TIERS, Level, Levels, measure, read_latest, read_plan, read_slots
from waybill.transport.counting import counted
from waybill.transport.errors import WaybillError

from ..http import Problem, read_params
from .charts import sparkline
from .rendering import node_url
from .view import View

if TYPE_CHECKING:
    from waybill.lineage.answers import HomeAnswers
    from waybill.transport import Journal, Settings

    from .view import Rows

MOMENTS_MAX: Final = 288
"""So many moments of the history are drawn: a day of 5 minutes."""


class LevelsOverTime(Levels, frozen=True, kw_only=True):
    """The service levels of a home, and their history.

    Attributes:
        history: by level and tier, such as ``coverage/critical``, which part of what was counted was good at
            each moment of about a day, the oldest first.
    """

    history: dict[str, list[float]]


class Params(msgspec.Struct, frozen=True):
    """The tier to show, with the levels that have none; by default all."""

    tier: Literal["", "critical", "important", "optional"] = ""


class LevelsOfHome:
    """Reads the levels of one home.

    Args:
        journal: the home's journal, which keeps them.
        settings: its agreed settings.
    """

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._lock = threading.Lock()

    def view(self) -> View:
        """The view."""
        helpers: dict[str, Callable[..., str]] = {
            "history_of": draw_history,
            "dataset_url": lambda *name: node_url(Node(NodeKind.DATASET, *name)),
        }
        read = partial(read_params, kind=Params)
        return View("/slis", "Service levels", read, self.ask, rows_of, helpers=helpers)

    def ask(self, answers: HomeAnswers, params: Params) -> LevelsOverTime:
        """The levels of a tier as they were recorded last, and their history."""
        found = read_latest(self._journal) or self._measure(answers)
        wanted = {"", params.tier} if params.tier else {"", *TIERS}
        history: dict[str, list[float]] = {}
        for slot in read_slots(self._journal)[-MOMENTS_MAX:]:
            for name, (good, total) in slot.counts.items():
                if total and name.partition("/")[2] in wanted:
                    history.setdefault(name, []).append(good / total)
        return LevelsOverTime(
            measured_ms=found.measured_ms,
            levels=tuple(one for one in found.levels if one.tier in wanted),
            breaches=tuple(one for one in found.breaches if one.tier in wanted),
            breaches_left_out=found.breaches_left_out,
            maintenance=found.maintenance,
            history=history,
        )

    def _measure(self, answers: HomeAnswers) -> Levels:
        try:
            with self._lock:
                return measure(answers, self._journal, read_plan(self._settings))
        except WaybillError as error:
            reason = "the service levels cannot be measured"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), reason=reason) from None


def draw_history(found: LevelsOverTime, level: Level) -> str:
    """The history of a level as a small line; empty where there is none."""
    shares = found.history.get(level.key, [])
    if len(shares) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    span = f"{min(shares):.1%} to {max(shares):.1%}, now {shares[-1]:.1%}"
    return sparkline(shares, f"{counted(len(shares), 'moment')}, good: {span}")


def rows_of(found: LevelsOverTime) -> Rows:
    """The levels as a table."""
    windows = sorted({window for one in found.levels for window in one.burn_rates})
    names = ("sli", "tier", "value", "unit", "bound", "objective", "is_met", "budget_left", "unknown", "note")
    yield (*names, *(f"burn_rate_{window}" for window in windows))
    for one in found.levels:
        rates = (one.burn_rates.get(window) for window in windows)
        yield (*(getattr(one, name) for name in names), *rates)
