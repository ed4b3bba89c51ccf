"""A seeded simulation over a disk that forgets what was not fsynced.

The journal, the spool, the layout with its raw writer and its compactor, and the runner's housekeeping are
the real ones, called one after the other in an order that the seed decides. Only the runner's threads are
left out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from seam.chance import chance_from
from seam.disk import ForgetfulDisk
from seam.homes import settings_in
from seam.ledger import Ledger, Teller, run_in_process
from seam.oracle import recover_and_check
from seam.plan import Act, Plan
from seam.program import begin, wander

from waybill.transport import WaybillError

OUTAGES = 4
CALLS_MAX = 260
"""Roughly how many calls the program makes between two outages."""
RUNS = 4
RUNS_UNTIL_NOTICED = 60


MISSING: dict[str, Callable[[Path], bool]] = {
    "a file before it is renamed": lambda path: path.suffix == ".tmp",
    "a folder after a rename": lambda path: "provenance" in path.parts and path.suffix == "",
    "the write-ahead log": lambda path: path.name.endswith("-wal"),
    "the database": lambda path: path.name == "journal.db",
    "a spool": lambda path: path.suffix == ".spool",
    "the folder of a spool": lambda path: path.name == "spool",
}


def simulate(folder: Path, seed: int, run: int, deaf: Callable[[Path], bool] = lambda _: False) -> None:
    """Run one home through several outages; each time everything acknowledged must still be there."""
    settings = settings_in(folder / f"run-{run}")
    chance = chance_from(seed, run)
    ledger = Ledger(has_power_cuts=True)
    for outage in range(OUTAGES):
        within = chance_from(seed, run, outage)
        at = chance.randrange(CALLS_MAX)

        def work(teller: Teller, within: Random = within, at: int = at, outage: int = outage) -> None:
            plan = Plan(at, Act.POWER)
            plan.disk = ForgetfulDisk([settings.home, settings.root], within, deaf)
            wander(begin(settings, plan, teller), within, first=1 + outage * 1_000)
            plan.lose_power()

        ledger.struck = None
        status = run_in_process(work, ledger)
        try:
            assert status == -9 or ledger.faults, f"ended with {status}"
            recover_and_check(settings, ledger, fresh_number=999 + outage * 1_000)
        except BaseException as error:
            error.add_note(f"run {run}, outage {outage} at {ledger.struck}; repeat with --seed={seed}")
            raise


def test_what_was_acknowledged_survives_the_power(folder: Path, seed: int) -> None:
    for run in range(RUNS):
        simulate(folder, seed, run)


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", MISSING)
def test_a_missing_fsync_is_noticed(folder: Path, seed: int, where: str) -> None:
    with pytest.raises((AssertionError, WaybillError)):
        for run in range(RUNS_UNTIL_NOTICED):
            simulate(folder, seed, run, MISSING[where])
