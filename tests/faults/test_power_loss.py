"""A seeded simulation over a disk that forgets what was not fsynced.

The journal, the layout with its raw writer and its compactor, and the runner's housekeeping are
the real ones, called one after the other in an order that the seed decides. Only the runner's threads are
left out.
"""

from __future__ import annotations

import contextlib
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
from seam.sqlite import FaultySqlite
from seam.system import FaultySystem

from waybill.transport import Journal, Kind, WaybillError

OUTAGES = 4
CALLS_MAX = 260
"""Roughly how many calls the program makes between two outages."""
APPENDS = 60
RUNS = 4
RUNS_UNTIL_NOTICED = 60


MISSING: dict[str, Callable[[Path], bool]] = {
    "a file before it is renamed": lambda path: path.suffix == ".tmp",
    "a folder after a rename": lambda path: "provenance" in path.parts and path.suffix == "",
    "the write-ahead log": lambda path: path.name.endswith("-wal"),
    "the database": lambda path: path.name == "journal.db",
}


def simulate(folder: Path, seed: int, run: int, deaf: Callable[[Path], bool] = lambda _: False) -> None:
    """Run one home through several outages; each time everything acknowledged must still be there."""
    settings = settings_in(folder / f"run-{run}")
    chance = chance_from(seed, run)
    ledger = Ledger()
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


def append_at_random(journals: list[Journal], chance: Random, teller: Teller, first: int) -> None:
    """Append numbers, as emitters of either durability do, with the runner's checkpoints between them.

    A number is offered before it is appended, and acknowledged once it must survive the power.
    """
    offered: list[int] = []
    for number in range(first, first + APPENDS):
        journal, durable = chance.choice(journals), chance.random() < 0.3
        if durable and offered and chance.random() < 0.3:
            number = chance.choice(offered)  # noqa: PLW2901 - a repeat
        else:
            offered.append(number)
            teller.tell("offer", number)
        journal.append(Kind.OPENLINEAGE, b"%d " % number + bytes(number * 7 % 3000), durable=durable)
        if durable:
            teller.tell("ack", number)
        elif chance.random() < 0.1:
            journal.sync()
            teller.tell("ack", number)
        if chance.random() < 0.1:
            journal.checkpoint()


def test_the_power_leaves_everything_up_to_some_entry_and_nothing_that_was_fsynced_is_after_it(
    folder: Path, seed: int
) -> None:
    for run in range(2 * RUNS):
        home, expected = folder / f"run-{run}" / "home", list[int]()
        for outage in range(OUTAGES):
            chance, first = chance_from(seed, run, outage), 1 + outage * APPENDS

            def work(teller: Teller, home: Path = home, chance: Random = chance, first: int = first) -> None:
                plan = Plan(chance.randrange(CALLS_MAX), Act.POWER)
                plan.disk = ForgetfulDisk([home], chance)
                FaultySystem(plan, home).install()
                sqlite = FaultySqlite(plan)
                journals = [Journal(home, vfs=sqlite.name) for _ in range(2)]
                append_at_random(journals, chance, teller, first)
                plan.lose_power()

            ledger = Ledger()
            assert run_in_process(work, ledger) == -9, ledger.faults
            with contextlib.closing(Journal(home)) as journal:
                kept = [int(entry.body.split()[0]) for entry in journal.read(0)]
            assert kept == (expected + ledger.offered)[: len(kept)], f"run {run}, outage {outage}"
            assert set(expected) | ledger.acknowledged <= set(kept), f"run {run}, outage {outage}"
            expected = kept
