"""Kills, failures and power cuts at every write, fsync, rename and delete of a rebuild."""

from __future__ import annotations

from pathlib import Path

import pytest
from seam.cases import Hit, cases_of, check_case, check_every_death
from seam.chance import chance_from
from seam.rebuilding import rebuild_and_check, run_rebuilding

REBUILDING = Hit(run_rebuilding, rebuild_and_check, lambda settings: [settings.root])
SAMPLE = 8


def test_a_rebuild_hit_anywhere_and_run_again_is_right(folder: Path, seed: int) -> None:
    for at, act in chance_from(seed).sample(cases_of(REBUILDING, folder), SAMPLE):
        check_case(REBUILDING, folder, at, act, seed)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_rebuild_that_dies_at_any_call_and_is_run_again_is_right(folder: Path, seed: int) -> None:
    check_every_death(REBUILDING, folder, seed)
