"""The endpoints of the page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..http import Endpoint
from .answering import Answering
from .assets import STATIC_PATH, static
from .changing import Changing
from .rendering import lead_below
from .sign_in import Tries

if TYPE_CHECKING:
    from ..endpoints import Readings
    from ..http import Auth
    from ..sessions import Sessions
    from .health import HealthOfHome
    from .levels import LevelsOfHome


def page_endpoints(
    readings: Readings,
    auth: Auth,
    sessions: Sessions,
    health: HealthOfHome,
    levels: LevelsOfHome,
    *,
    ensure_runner: Callable[[], object],
) -> list[Endpoint]:
    """All endpoints of the page.

    Args:
        readings: begins the answers of the collector's home.
        auth: checks each request.
        sessions: those of the home.
        health: asks about the home itself.
        levels: reads its service levels.
        ensure_runner: starts the home's runner, unless there is one.
    """
    lead_below(auth.front.path)
    answering = Answering(readings, auth, sessions, [health.view(), levels.view()])
    changing = Changing(answering, auth, sessions, health, ensure_runner, tries=Tries())
    return [
        *answering.endpoints(),
        *changing.endpoints(),
        Endpoint(STATIC_PATH, None, static, show_problem=partial(answering.show_problem, "json")),
    ]
