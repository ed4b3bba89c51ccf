"""Events kept in a home, some of them in its index and the others in its journal only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from waybill.lineage import Lineage
from waybill.transport import Journal, Kind, Settings, flush

Told = bytes | Mapping[str, object]
"""An event, as bytes or by its members."""


def keep(home: Path, told: Iterable[Told]) -> Lineage:
    """Keep events; what the home answers from then on."""
    bodies = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in told]
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, body, "tests") for body in bodies)
    return Lineage.open(home)


def index(settings: Settings) -> None:
    """Have all that was kept in the index."""
    assert flush(settings).problems == {}


def keep_filed(settings: Settings, told: Sequence[Told], filed: int) -> Lineage:
    """Keep events, the first so many of which are in the index."""
    keep(settings.home, told[:filed])
    if filed:
        index(settings)
    return keep(settings.home, told[filed:])


def settings_in(folder: Path) -> Settings:
    """The settings of a home in an empty folder."""
    given = {"home": folder / "home", "system_name": "tests", "runner": "none"}
    return Settings.load(given, env={}, cwd=folder)
