"""Every write, fsync, rename and delete of journal, spool, raw writer and compactor: stopped there, or failed there."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from seam.emissions import Emission, emission, failure_after
from seam.ledger import Ledger, run_in_process
from seam.oracle import recover_and_check
from seam.plan import Act, Call, Plan
from seam.program import FRESH, run_program
from waybill.transport import Settings

ONE = "FAILPOINT"
"""Environment variable that picks one case, for example ``FAILPOINT=kill:17``."""
SAMPLE = 36
EMISSIONS: dict[int, Emission] = {
    number: failure_after(10, failed=1) if number == 10 else emission(number)
    for number in (*range(11), FRESH, FRESH + 1)
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a thing: a killed process does not need the disk's slowness."""
    memory = Path("/dev/shm")  # noqa: S108 - the folder below it has a name of its own
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="waybill-faults-", dir=memory))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def _no_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart replays a range and then has nothing to wait for."""
    monkeypatch.setattr("waybill.exporter.projection._LINGER_S", 0.0)


def settings_in(folder: Path) -> Settings:
    given = {
        "home": folder / "home",
        "root": folder / "root",
        "system_name": "tests",
        "provenance_enabled": True,
        "runner": "none",
    }
    return Settings.load(given, origin="tests", env={}, cwd=folder.parent)


def count_calls(folder: Path) -> list[Call]:
    """Every call of the program when nothing goes wrong; and that run, too, must meet the oracle."""
    ledger = Ledger()
    settings = settings_in(folder / "sound")
    assert run_in_process(lambda teller: run_program(settings, Plan(), teller), ledger) == 0, ledger.faults
    recover_and_check(settings, ledger, EMISSIONS)
    return ledger.calls


def check_case(folder: Path, at: int, act: Act) -> Call | None:
    """Run the program with one fault and hold what is left against the oracle; which call was hit."""
    settings = settings_in(folder / f"{act}-{at}")
    ledger = Ledger()
    try:
        status = run_in_process(lambda teller: run_program(settings, Plan(at, act), teller), ledger)
        if ledger.struck is not None:
            assert status == (-9 if act.is_death else 0) or ledger.faults, f"ended with {status}"
        recover_and_check(settings, ledger, EMISSIONS)
    except BaseException as error:
        error.add_note(f"{act} at call {at}, {ledger.struck}; repeat with {ONE}={act}:{at}")
        raise
    shutil.rmtree(settings.home.parent)
    return ledger.struck


def test_a_sample_of_all_faults(folder: Path, seed: int) -> None:
    calls = count_calls(folder)
    cases = [(at, act) for at, call in enumerate(calls) for act in Act if call.can(act)]
    for at, act in random.Random(seed).sample(cases, SAMPLE):
        check_case(folder, at, act)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("act", Act)
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
