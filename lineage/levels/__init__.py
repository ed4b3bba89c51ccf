"""Service levels of lineage: whether it is complete, fresh and sound, and what was promised of that."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .counting import Breach as Breach, OfLevels as OfLevels
    from .history import EVERY_MS as EVERY_MS, read_slots as read_slots
    from .measuring import (
        TIMED as TIMED,
        Level as Level,
        Levels as Levels,
        Served as Served,
        measure as measure,
        read_latest as read_latest,
    )
    from .objectives import (
        TIERS as TIERS,
        LevelsFile as LevelsFile,
        MaintenanceWindow as MaintenanceWindow,
        OnAlert as OnAlert,
        Plan as Plan,
        Sli as Sli,
        read_plan as read_plan,
    )

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
