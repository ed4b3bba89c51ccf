"""A program that gets one fault at one of its calls; afterwards the result is checked."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seam.chance import chance_from
from seam.disk import ForgetfulDisk
from seam.homes import settings_in
from seam.ledger import Ledger, Teller, run_in_process
from seam.plan import Act, Plan

if TYPE_CHECKING:
    from waybill.transport import Settings


class Hit(NamedTuple):
    """A program, and the check of its result.

    Attributes:
        run: the program; its spans say which of its calls count.
        check: checks the state after a fault, repeats everything and checks again.
        folders: the folders that the program writes to, where the disk forgets.
    """

    run: Callable[[Settings, Plan, Teller], None]
    check: Callable[[Settings, Ledger], None]
    folders: Callable[[Settings], list[Path]]


def cases_of(hit: Hit, folder: Path) -> list[tuple[int, Act]]:
    """Every call with every possible act; the run without a fault must be right too."""
    ledger, settings = Ledger(), settings_in(folder / "sound")
    assert run_in_process(lambda teller: hit.run(settings, Plan(), teller), ledger) == 0, ledger.faults
    hit.check(settings, ledger)
    counted = (at for start, end in ledger.spans for at in range(start, end))
    return [(at, act) for at in counted for act in Act if ledger.calls[at].can(act)]


def check_every_death(hit: Hit, folder: Path, seed: int) -> None:
    """Let the program die at every call and within every write, and report each failure."""
    failures = []
    for at, act in cases_of(hit, folder):
        if act.is_death:
            try:
                check_case(hit, folder, at, act, seed)
            except Exception as error:  # noqa: BLE001 - all cases are tried, and each that fails is told of
                failures.append(f"{error!r} {error.__notes__}")
    assert not failures, f"{len(failures)} failed:\n" + "\n".join(failures)


def check_case(hit: Hit, folder: Path, at: int, act: Act, seed: int) -> None:
    """Run the program with one fault and check the result."""
    settings, ledger = settings_in(folder / f"{act}-{at}"), Ledger()

    def work(teller: Teller) -> None:
        plan = Plan(at, act)
        if act is Act.POWER:
            plan.disk = ForgetfulDisk(hit.folders(settings), chance_from(seed, at))
        hit.run(settings, plan, teller)

    try:
        status = run_in_process(work, ledger)
        assert ledger.struck is not None, "it was not hit"
        assert status == (-9 if act.is_death else 0) or ledger.faults, f"ended with {status}"
        hit.check(settings, ledger)
    except BaseException as error:
        error.add_note(f"{act} at call {at}, {ledger.struck}; seed {seed}")
        raise
    shutil.rmtree(settings.home.parent)
