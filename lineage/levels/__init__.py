"""Service levels of lineage: whether it is complete, fresh and sound, and what was promised of that."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .counting import Breach, OfLevels
    from .history import EVERY_MS, read_slots
    from .measuring import TIMED, Level, Levels, Served, measure, read_latest
    from .objectives import TIERS, LevelsFile, MaintenanceWindow, OnAlert, Plan, Sli, read_plan

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
