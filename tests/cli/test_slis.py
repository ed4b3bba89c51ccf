"""`waybill slis`: what it prints, records and fails for."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from events import event

from waybill.lineage.levels import read_latest
from waybill.lineage.levels.history import read_slots
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Run


@pytest.fixture
def told(home: Path) -> Path:
    """A home in which a job reads a dataset that none writes."""
    journal, at = Journal(home), (datetime.now(UTC) - timedelta(minutes=2)).isoformat()
    journal.append(
        Kind.OPENLINEAGE, event("r", at=at, job="etl/a", inputs=["lake/raw"], outputs=["lake/orders"])
    )
    journal.close()
    return home


def test_a_missed_objective_is_exit_code_1_and_named(called: Run, told: Path) -> None:
    done = called("slis", "--home", told)
    assert done.returncode == 1
    lines = {tuple(cells[:2]): cells for line in done.stdout.splitlines() if (cells := line.split("\t"))}
    assert len(lines) == 1 + 5 * 3 + 5
    assert lines["missing provenance", "important"][2:5] == ["100.00%", "≤ 1.00%", "no"]
    assert lines["coverage", "critical"][2:5] == ["unknown", "≥ 80.00%", "not known"]
    assert lines["coverage", "optional"][2:5] == ["unknown", "", ""]
    assert "no inventory" in lines["coverage", "critical"][-1]
    assert "missing provenance: important: lake raw" in done.stderr
    assert json.loads(called("slis", "--home", told, "--json", "--tier", "optional").stdout)["breaches"] == []
    (told / "slis.yaml").write_text("external: ['*']\nobjectives: {ingestion_lag: null}\n")
    assert called("slis", "--home", told).returncode == 0


def test_a_tier_alone_is_shown_and_decides(called: Run, told: Path) -> None:
    done = called("slis", "--home", told, "--tier", "critical", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, {one["tier"] for one in found["levels"]}) == (0, {"critical"})
    assert found["breaches"] == []


def test_only_when_it_is_told_to_it_records(called: Run, told: Path) -> None:
    assert called("slis", "--home", told).returncode == 1
    journal = Journal(told, to_read=True)
    assert (read_slots(journal), read_latest(journal)) == ([], None)
    for _ in range(2):  # the second time within 5 minutes adds nothing
        assert called("slis", "--home", told, "--record").returncode == 1
        assert len(read_slots(journal)) == 1
    found = read_latest(journal)
    assert found is not None
    assert [one.sli for one in found.missed] == ["missing_provenance", "ingestion_lag"]
    journal.close()


def test_a_mistake_in_the_file_is_told_with_its_line(called: Run, told: Path, tmp_path: Path) -> None:
    file = tmp_path / "other.yaml"
    file.write_text("tiers:\n  - {datasets: a, tier: urgent}\n")
    done = called("slis", "--home", told, "--slis", file)
    assert (done.returncode, f"{file}:2: tiers.0.tier: 'urgent' is not a possible value" in done.stderr) == (
        2,
        True,
    )
    missing = called("slis", "--home", told, "--slis", tmp_path / "none.yaml")
    assert (missing.returncode, "there is no file" in missing.stderr) == (2, True)


def test_an_empty_home_knows_no_level(called: Run, made_home: None, home: Path) -> None:  # noqa: ARG001 - makes it
    found = json.loads(called("slis", "--home", home, "--json").stdout)
    assert {one["value"] for one in found["levels"]} == {None}
    assert all(one["unknown"] for one in found["levels"])
