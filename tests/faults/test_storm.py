"""The storm: all faults at once, and in the end nothing acknowledged is missing unnoticed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from seam.storm import Storm
from seam.town import Town

STORM_S = float(os.environ.get("STORM_S", "30"))
"""How long the storm lasts; `make storm` runs it for an hour."""
ACKNOWLEDGED_PER_S = 10


@pytest.fixture
def town(tmp_path: Path, seed: int) -> Iterator[Town]:
    town = Town(tmp_path, seed)
    yield town
    town.close()


@pytest.mark.faults
@pytest.mark.timeout(STORM_S * 2 + 900)
def test_what_was_acknowledged_is_in_the_layout_once_after_a_storm(town: Town, seed: int) -> None:
    storm = Storm(town, seed)
    town.begin()
    try:
        storm.blow(STORM_S)
        storm.check()
    except BaseException:
        town.kill_all()
        town.keep()
        raise
    assert len(town.ledger.acknowledged) > ACKNOWLEDGED_PER_S * STORM_S
