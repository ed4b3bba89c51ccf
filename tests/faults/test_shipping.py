"""Every write, fsync, rename and delete of an export and an age-off: killed, failed, or the power gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from seam.chance import chance_from
from seam.disk import ForgetfulDisk
from seam.homes import settings_in
from seam.ledger import Ledger, Teller, run_in_process
from seam.plan import Act, Call, Plan
from seam.shipping import run_shipping, ship_and_check, there_of

ONE = "SHIPPING"
"""Environment variable that picks one case, for example ``SHIPPING=kill:170``, or ``all`` that there are."""
SAMPLE = 16
SAMPLE_EXHAUSTIVE = 120


def count_calls(folder: Path) -> dict[int, Call]:
    """The calls of exports and age-offs when nothing goes wrong; and that run, too, must be right."""
    ledger, settings = Ledger(), settings_in(folder / "sound")
    assert run_in_process(lambda teller: run_shipping(settings, Plan(), teller), ledger) == 0, ledger.faults
    ship_and_check(settings, ledger)
    return {at: ledger.calls[at] for start, end in ledger.spans for at in range(start, end)}


def check_case(folder: Path, at: int, act: Act, seed: int) -> None:
    """Run the program with one fault and look at what is left."""
    settings, ledger = settings_in(folder / f"{act}-{at}"), Ledger()

    def work(teller: Teller) -> None:
        plan = Plan(at, act)
        if act is Act.POWER:
            folders = [settings.home, settings.root, there_of(settings)]
            plan.disk = ForgetfulDisk(folders, chance_from(seed, at))
        run_shipping(settings, plan, teller)

    try:
        status = run_in_process(work, ledger)
        assert ledger.struck is not None, "it was not hit"
        assert status == (-9 if act.is_death else 0) or ledger.faults, f"ended with {status}"
        ship_and_check(settings, ledger)
    except BaseException as error:
        error.add_note(f"{act} at call {at}, {ledger.struck}; repeat with {ONE}={act}:{at} and --seed={seed}")
        raise
    shutil.rmtree(settings.home.parent)


def test_an_export_or_age_off_hit_anywhere_and_run_again_is_right(folder: Path, seed: int) -> None:
    calls = count_calls(folder)
    cases = [(at, act) for at, call in calls.items() for act in Act if call.can(act)]
    for at, act in chance_from(seed).sample(cases, SAMPLE):
        check_case(folder, at, act, seed)


@pytest.mark.exhaustive
@pytest.mark.timeout(3_600)
def test_many_more_faults_of_an_export_and_an_age_off(folder: Path, seed: int) -> None:
    calls = count_calls(folder)
    cases = [(at, act) for at, call in calls.items() for act in Act if call.can(act)]
    if wanted := os.environ.get(ONE):
        cases = [(at, act) for at, act in cases if wanted in {f"{act}:{at}", "all"}]
    else:
        cases = chance_from(seed, 1).sample(cases, SAMPLE_EXHAUSTIVE)
    failures = []
    for at, act in cases:
        try:
            check_case(folder, at, act, seed)
        except Exception as error:  # noqa: BLE001 - all cases are tried, and each that fails is told of
            failures.append(f"{error!r} {error.__notes__}")
    assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures)
