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


def test_an_empty_home_knows_no_level(called: Run, made_home: None, home: Path) -> None:  # noqa: ARG001 - makes it
    found = json.loads(called("slis", "--home", home, "--json").stdout)
    assert {one["value"] for one in found["levels"]} == {None}
    assert all(one["unknown"] for one in found["levels"])
