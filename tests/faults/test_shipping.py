"""Kills, failures and power cuts at every write, fsync, rename and delete of exports and age-offs."""

from __future__ import annotations

from pathlib import Path

import pytest
from seam.cases import Hit, cases_of, check_case, check_every_death
from seam.chance import chance_from
from seam.shipping import run_shipping, ship_and_check, there_of

SHIPPING = Hit(
    run_shipping,
    ship_and_check,
    lambda settings: [settings.home, settings.root, there_of(settings)],
)
SAMPLE = 6


def test_an_export_or_age_off_hit_anywhere_and_run_again_is_right(folder: Path, seed: int) -> None:
    for at, act in chance_from(seed).sample(cases_of(SHIPPING, folder), SAMPLE):
        check_case(SHIPPING, folder, at, act, seed)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_an_export_or_age_off_that_dies_at_any_call_and_is_run_again_is_right(
    folder: Path, seed: int
) -> None:
    check_every_death(SHIPPING, folder, seed)
