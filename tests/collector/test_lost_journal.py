"""A journal that is lost while it is served: refused, and everything acknowledged saved."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from served import record

from waybill.lineage import find
from waybill.transport import flush

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from conftest import Open

    from waybill.transport import Settings

BATCH = 500


def batch(number: int) -> bytes:
    return json.dumps([record(did=f"d{number}-{at}") for at in range(BATCH)]).encode()


def test_a_deleted_journal_is_refused_and_all_that_was_acknowledged_comes_into_the_files(
    inside: Open, settings: Settings, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    collector = inside()
    assert all(collector.post("/provenance", batch(number)).status == 202 for number in range(10))
    for path in home.glob("journal.db*"):
        path.unlink()
    assert collector.post("/provenance", batch(10)).status == 503
    ready = collector.get("/health/ready")
    assert (ready.status, ready.json["ready"]) == (503, False)
    assert "was deleted while it was open" in ready.json["problems"]["journal"]
    assert f"{home / 'journal.db'} was deleted while it was open" in caplog.text
    assert flush(settings).left == {}
    assert len(find(settings.root)) == 10 * BATCH
    assert collector.post("/provenance", batch(10)).status == 503, "until it is started again"
    assert collector.get("/health/ready").status == 503
