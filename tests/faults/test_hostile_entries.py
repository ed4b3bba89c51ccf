"""Entries that expand to far more than their size, put into the journal past admission."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
from events import members
from seam.bounded import MIB, RUNNER_BYTES, flush_and_measure
from seam.homes import settings_in

from waybill.transport import Journal, Kind

pytestmark = pytest.mark.faults

WAYBILL: Final = str(Path(sys.executable).parent / "waybill")
ROW_BYTES_MAX: Final = MIB


def ended(run: str, second: int = 0, **more: object) -> bytes:
    """The end of a run."""
    return json.dumps(members(run, at=f"2026-01-01T00:00:{second:02}Z", job="edge/job") | more).encode()


def long_names(outputs: int, chars: int, run: str = "names") -> Iterator[bytes]:
    """An event whose every output makes a record that repeats long names."""
    job = {"namespace": "edge", "name": "j" * chars}
    inputs = [{"namespace": "n", "name": "i" * chars}]
    names = [{"namespace": "o", "name": f"out-{at}"} for at in range(outputs)]
    yield ended(run, job=job, inputs=inputs, outputs=names)


def long_outputs(outputs: int, chars: int, prefix: str = "") -> Iterator[bytes]:
    """Five events of one run, each with different outputs with long names."""
    for second in range(5):
        names = (f"{prefix}{second}-{at}-".ljust(chars, "x") for at in range(outputs))
        yield ended("outputs", second, outputs=[{"namespace": "o", "name": name} for name in names])


def long_ids(runs: int, chars: int) -> Iterator[bytes]:
    """Runs with long ids."""
    for at in range(runs):
        yield ended(f"{at}-".ljust(chars, "r"))


@pytest.mark.exhaustive
def test_a_run_gets_no_more_outputs_than_there_is_memory_for(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    journal = Journal(settings.home, packs=True)
    for at, body in enumerate(chain(*(long_outputs(1_000, 60_000, f"{half}-") for half in range(2)))):
        journal.append(Kind.OPENLINEAGE, body)
        journal.append(Kind.OPENLINEAGE, ended(f"neighbour-{at}"))
    journal.close()
    flushed = flush_and_measure(tmp_path)
    assert flushed.peak_bytes <= RUNNER_BYTES
    refused = flushed.poison["layout"]
    assert 5 <= refused <= 7
    files = list((settings.root / "provenance/compacted").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == (10 - refused) * 1_000 + 10


@pytest.mark.parametrize(
    ("entries", "records"),
    [
        pytest.param(
            chain(long_names(20, 90_000), long_outputs(20, 20_000), long_ids(3, 1_000_000)), 123, id="some"
        ),
        pytest.param(long_names(1_000, 90_000), 1_000, id="names", marks=pytest.mark.exhaustive),
        pytest.param(long_outputs(1_000, 40_000), 5_000, id="outputs", marks=pytest.mark.exhaustive),
        pytest.param(long_ids(100, 1_000_000), 100, id="ids", marks=pytest.mark.exhaustive),
    ],
)
def test_entries_that_stand_for_much_cost_no_neighbour_and_little_memory(
    tmp_path: Path, entries: Iterator[bytes], records: int
) -> None:
    settings = settings_in(tmp_path)
    journal = Journal(settings.home, packs=True)
    journal.append(Kind.OPENLINEAGE, ended("before"))
    for body in entries:
        journal.append(Kind.OPENLINEAGE, body)
    (too_much,) = long_names(10_000, 90_000, "too much")
    poison = journal.append(Kind.OPENLINEAGE, too_much)
    journal.append(Kind.OPENLINEAGE, ended("after"))
    journal.close()

    flushed = flush_and_measure(tmp_path)
    assert flushed.poison == {"layout": 1}
    assert flushed.peak_bytes <= RUNNER_BYTES

    journal = Journal(settings.home)
    assert max(map(len, journal.state("layout").values())) <= ROW_BYTES_MAX
    journal.close()
    files = list((settings.root / "provenance/compacted").rglob("*.parquet"))
    assert sum(pq.read_metadata(file).num_rows for file in files) == records + 2
    dids = {did for file in files for did in pq.read_table(file, columns=["did"])["did"].to_pylist()}
    assert {"before", "after"} <= dids
    assert "too much" not in dids

    def waybill(*given: object) -> str:
        command = [WAYBILL, *map(str, given)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    (listed,) = waybill("poison", "list", "--home", settings.home, "--json").splitlines()
    named = json.loads(listed)
    assert (named["seq"], named["projection"]) == (poison, "layout")
    assert "its records would be too large; send fewer outputs in one event" in named["reason"]
    waybill("verify", "--home", settings.home, "--root", settings.root)
