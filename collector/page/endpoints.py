"""The endpoints of the page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..http import Endpoint
from .answering import Answering
from .assets import STATIC_PATH, static
from .changing import Changing
from .health import HealthOfHome
from .levels import LevelsOfHome
from .rendering import lead_below

if TYPE_CHECKING:
    from waybill.exporter.health import Problem
    from waybill.transport.home import Home

    from ..endpoints import Readings
    from ..http import Auth, Bodies
    from ..sessions import Sessions


def page_endpoints(
    home: Home,
    readings: Readings,
    bodies: Bodies,
    auth: Auth,
    sessions: Sessions,
    *,
    find_problems: Callable[[], list[Problem]],
) -> list[Endpoint]:
    """All endpoints of the page.

    Args:
        home: the collector's home.
        readings: begins its answers.
        bodies: reads its forms.
        auth: checks each request.
        sessions: those of the home.
        find_problems: finds everything that is wrong with the home.
    """
    lead_below(auth.front.path)
    health = HealthOfHome(home.journal, home.settings, home.redaction, find_problems)
    levels = LevelsOfHome(home.journal, home.settings)
    answering = Answering(readings, auth, sessions, [health.view(), levels.view()])
    changing = Changing(answering, bodies, auth, sessions, health, ensure_runner=home.ensure_runner)
    return [
        *answering.endpoints(),
        *changing.endpoints(),
        Endpoint(STATIC_PATH, None, static, show_problem=partial(answering.show_problem, "json")),
    ]
