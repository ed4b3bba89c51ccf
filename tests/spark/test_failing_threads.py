"""Writes that fail in many threads at once, where the listener leaves out what it usually says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from waybill.facets import FinalState

if TYPE_CHECKING:
    from conftest import Ran, Run

GOOD = {3, 8, 13}

WRITES = f"""
from concurrent.futures import ThreadPoolExecutor
spark = waybill.spark.session("threads", **SETTINGS, **LOCAL)
spark.sparkContext.setLogLevel("OFF")
good = {GOOD}

def write(number):
    value = "id" if number in good else f"raise_error('boom {{number}}')"
    try:
        rows = spark.range(100).selectExpr(f"cast({{value}} as string) as x")
        (rows.repartition(2) if number % 2 else rows).write.parquet(OUT + f"/w{{number}}")
    except Exception:
        assert number not in good
    else:
        assert number in good

with ThreadPoolExecutor(8) as threads:
    list(threads.map(write, range(16)))
spark.stop()
"""


@pytest.fixture(scope="module")
def writes(run: Run) -> Ran:
    ran = run(WRITES)
    assert ran.status == 0, ran.stderr
    return ran


@pytest.mark.parametrize("number", range(16))
def test_of_writes_in_many_threads_those_that_failed_are_errors_each_with_its_own_reason(
    writes: Ran, number: int
) -> None:
    (record,) = writes.written(f"w{number}")
    cause = (record.annotations or {}).get("errorCause", "")
    if number in GOOD:
        assert (record.final_state, cause) == (FinalState.COMPLETE, "")
    else:
        assert record.final_state is FinalState.ERROR
        assert f"boom {number} " in cause + " "
