"""The process in which an index has events analyzed is there while it is of use."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from events import members

from waybill.lineage import Index
from waybill.lineage.index import analysis
from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    import pytest

    from waybill.transport import Settings


def processes() -> int:
    """How many processes of analyzers this one has started that have not ended."""
    told = 0
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            command = Path(f"/proc/{child}/cmdline")
            told += command.exists() and b"waybill.lineage.analyzers" in command.read_bytes()
    return told


def test_the_process_is_started_for_an_event_and_ended_when_it_is_idle(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "IDLE_S", 0.5)
    fields = {"fields": [{"name": "a", "type": "string"}]}
    table = {"namespace": "lake", "name": "in", "facets": {"schema": fields}}
    with closing(Journal(settings.home)) as journal, closing(Index(journal, settings, linger_s=0)) as index:
        journal.append(Kind.OPENLINEAGE, json.dumps(members("r", "COMPLETE", inputs=["lake/b"])).encode())
        while index.step().applied:
            pass
        assert processes() == 0  # nothing in it is for an analyzer
        event = members("s", "COMPLETE", inputs=[table], outputs=[table | {"name": "out"}])
        journal.append(Kind.OPENLINEAGE, json.dumps(event).encode())
        seen, until_s = 0, time.monotonic() + 60
        while time.monotonic() < until_s and not (seen and not processes()):
            step = index.step()
            seen = max(seen, processes())
            time.sleep(0.01 if step.applied else min(step.retry_s or 0, 0.1))
        assert (seen, processes()) == (1, 0)
