"""Kills and failures at every write, fsync, rename and delete of journal, raw writer and compactor."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from seam.chance import chance_from
from seam.homes import settings_in
from seam.ledger import Ledger, run_in_process
from seam.oracle import recover_and_check
from seam.plan import Act, Call, Plan
from seam.program import run_program

ONE = "FAILPOINT"
"""The environment variable that selects one case, for example ``FAILPOINT=kill:17``."""
SAMPLE = 8
ACTS = [act for act in Act if act is not Act.POWER]


def count_calls(folder: Path) -> list[Call]:
    """Every call of the program without a fault; that run must satisfy the oracle too."""
    ledger = Ledger()
    settings = settings_in(folder / "sound")
    assert run_in_process(lambda teller: run_program(settings, Plan(), teller), ledger) == 0, ledger.faults
    recover_and_check(settings, ledger)
    return ledger.calls


def check_case(folder: Path, at: int, act: Act) -> Call | None:
    """Run the program with one fault, check the result with the oracle, and return the call that failed."""
    settings = settings_in(folder / f"{act}-{at}")
    ledger = Ledger()
    try:
        status = run_in_process(lambda teller: run_program(settings, Plan(at, act), teller), ledger)
        if ledger.struck is not None:
            assert status == (-9 if act.is_death else 0) or ledger.faults, f"ended with {status}"
        recover_and_check(settings, ledger)
    except BaseException as error:
        error.add_note(f"{act} at call {at}, {ledger.struck}; repeat with {ONE}={act}:{at}")
        raise
    shutil.rmtree(settings.home.parent)
    return ledger.struck


def test_a_sample_of_all_faults(folder: Path, seed: int) -> None:
    calls = count_calls(folder)
    cases = [(at, act) for at, call in enumerate(calls) for act in ACTS if call.can(act)]
    for at, act in chance_from(seed).sample(cases, SAMPLE):
        check_case(folder, at, act)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("act", ACTS)
def test_every_fault(folder: Path, act: Act) -> None:
    calls = count_calls(folder)
    cases = [at for at, call in enumerate(calls) if call.can(act)]
    if wanted := os.environ.get(ONE):
        cases = [at for at in cases if wanted == f"{act}:{at}"]
    failures = []
    for at in cases:
        try:
            check_case(folder, at, act)
        except Exception as error:  # noqa: BLE001 - all cases are tried, and each that fails is told of
            failures.append(f"{calls[at]}: {error!r} {error.__notes__}")
    assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures)
