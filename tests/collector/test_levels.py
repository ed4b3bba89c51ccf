"""The service levels of a collector: recorded by one process, shown over HTTP and to Prometheus."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from served import event

from waybill.collector.endpoints import Readings
from waybill.collector.metrics import Metrics, levels_text
from waybill.collector.server.measuring import record_levels
from waybill.lineage.levels import Sli, read_latest
from waybill.transport import Journal, Settings

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Open

IMPACT = "/api/v1/impact"


def test_levels_are_answered_and_what_was_recorded_is_in_the_metrics(inside: Open) -> None:
    collector = inside()
    assert collector.post("/api/v1/lineage", event()).status == 201
    found = collector.get("/slis").json
    assert {one["sli"] for one in found["levels"]} == {one.value for one in Sli}
    assert found["levels"][-1]["unknown"].startswith("no collector has counted")


def test_a_collector_that_nobody_asks_records_its_levels_without_arrow(home: Path) -> None:
    program = """if True:
        import sys
        from pathlib import Path
        from waybill.collector.endpoints import Readings
        from waybill.collector.metrics import Metrics
        from waybill.collector.server.measuring import record_levels
        from waybill.lineage.levels import read_latest
        from waybill.transport import Journal, Settings

        settings = Settings.load({"home": Path(sys.argv[1])}, env={})
        journal = Journal(settings.home)
        record_levels(Readings(journal, settings), journal, settings, Metrics().served("a", {}))
        assert read_latest(journal) is not None
        print(*sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", program, str(home)], check=True, capture_output=True, text=True
    )
    loaded = done.stdout.split()
    assert "waybill.lineage.index.reading" in loaded
    assert {"pyarrow", "duckdb", "numpy"} & set(loaded) == set()


def test_what_a_collector_counted_is_recorded_with_the_levels(settings: Settings) -> None:
    journal = Journal(settings.home)
    metrics = Metrics()
    questions = {"query_latency": {IMPACT, "/trace"}, "impact_analysis": {IMPACT}}
    for _ in range(20):
        metrics.answered(IMPACT, "GET", 200, 0.3)
    metrics.answered("/trace", "GET", 200, 20.0)
    metrics.count("refused_access", 2, status="401")
    readings = Readings(journal, settings)
    record_levels(readings, journal, settings, metrics.served("a", questions))
    readings.close()
    found = read_latest(journal)
    journal.close()
    assert found is not None
    lines = dict(line.rsplit(" ", 1) for line in levels_text(found) if not line.startswith("#"))
    assert lines['waybill_sli_value{sli="unauthorised_access",tier=""}'] == "2.0"
    assert lines['waybill_sli_met{sli="unauthorised_access",tier=""}'] == "0"
    assert lines['waybill_sli_objective{sli="query_latency",tier=""}'] == "0.5"
    assert 0.25 < float(lines['waybill_sli_value{sli="impact_analysis",tier=""}']) <= 0.5
    assert lines['waybill_sli_burn_rate{sli="impact_analysis",tier="",window="1h"}'] == "0.0"
    assert float(lines['waybill_sli_error_budget_left{sli="query_latency",tier=""}']) < 1
    assert lines["waybill_sli_breaches_left_out"] == "0"
    assert not any("coverage" in line and "value" in line for line in lines), "it is unknown"
