"""The nightly example: two programs that know nothing of Waybill, and a collector that is killed between."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from served import Collector

from waybill.lineage import Lineage
from waybill.transport import fingerprint_of

NIGHTLY = Path(__file__).parents[2] / "examples" / "nightly"
ORDERS = "id,customer,amount\n1,ada,20\n2,bob,\n3,eve,15\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The example's folder, with a night's orders."""
    copy = Path(shutil.copytree(NIGHTLY, tmp_path / "nightly"))
    (copy / "orders.csv").write_text(ORDERS)
    return copy


@pytest.mark.exhaustive
def test_a_night_is_known_whole_although_the_collector_was_killed(
    folder: Path, script: Path, tmp_path: Path
) -> None:
    own, central = tmp_path / "own", tmp_path / "central"
    collector = Collector(central, "--provenance-enabled")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OPENLINEAGE_URL": f"{collector.url}/api/v1/lineage",
        "WAYBILL_RUNNER": "none",
    }

    def waybill(*arguments: str | Path) -> None:
        command = [script, *arguments, "--home", own]
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr

    try:
        waybill("run", folder / "clean", "--provenance-enabled")
        waybill("flush")
        collector.process.kill()
        collector.process.communicate()
        waybill("run", folder / "report")  # nobody listens, and nothing is lost
        collector = Collector(central, "--provenance-enabled", "--listen", collector.address)
        waybill("flush")
    finally:
        collector.process.kill()
        collector.process.communicate()
    for home in (own, central):
        lineage = Lineage.open(home)
        reached = lineage.impact(f"file{folder / 'orders.csv'}").nodes
        assert [(one.node.name.rpartition("/")[2], one.owners) for one in reached] == [
            ("clean-orders", ("ingest-team",)),
            ("clean.csv", ("ingest-team",)),
            ("daily-report", ("finance-team",)),
            ("totals", ("finance-team",)),
        ]
        assert {one.last_run.state for one in reached if one.last_run} == {"COMPLETE"}
        records = {record.transforms[-1]: record for record in lineage.find()}
        assert set(records) == {"clean-orders", "daily-report"}
    versions = [
        edge.target.version
        for edge in Lineage.open(central).dependencies(f"file{folder / 'clean.csv'}").related
        if edge.target.version
    ]
    assert versions == [str(fingerprint_of(folder / "clean.csv"))]
