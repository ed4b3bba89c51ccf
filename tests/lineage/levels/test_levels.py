"""The service levels, each measured from a small home: events in, level out."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest
from keeping import NOON, dataset, index, keep, keep_filed, ran, said_of

from waybill.exporter.keys import Keys
from waybill.exporter.query import TailReader
from waybill.lineage.answers import HomeAnswers
from waybill.lineage.index import reading as tail
from waybill.lineage.levels import Level, Levels, Served, measure, read_plan
from waybill.transport import Journal, Kind, Rejects, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events import Named

HOUR_S = 3_600.0
OWNED = ["ann"]
TYPED = {"total": "int"}
CRITICAL: dict[str, Any] = {"tags": {"tags": [{"key": "tier", "value": "critical"}]}}


def minute_of(seconds_ago: float) -> float:
    """The minute of an event, as `ran` wants it."""
    return (time.time() - seconds_ago - NOON.timestamp()) / 60


def run_of(
    job: str,
    reads: Sequence[Named] = (),
    writes: Sequence[Named] = (),
    seconds_ago: float = 60.0,
    **others: Any,  # noqa: ANN401 - see `ran`
) -> dict[str, Any]:
    return ran(f"etl/{job}", reads, writes, minute_of(seconds_ago), run=f"{job} {seconds_ago}", **others)


def measured(
    settings: Settings, *, record: bool = False, after_s: float = 0.0, served: Served | None = None
) -> Levels:
    with contextlib.closing(Journal(settings.home)) as journal:
        answers = HomeAnswers(journal, settings, TailReader(journal), Keys())
        now_ms = int((time.time() + after_s) * 1_000)
        history = journal if record else None
        return measure(answers, journal, read_plan(settings), served=served, history=history, now_ms=now_ms)


def level(found: Levels, sli: str, tier: str = "") -> Level:
    (one,) = [one for one in found.levels if (one.sli, one.tier) == (sli, tier)]
    return one


def values(found: Levels, sli: str) -> dict[str, float | None]:
    return {one.tier: one.value for one in found.levels if one.sli == sli}


def breaches(found: Levels, sli: str) -> list[tuple[str, str, str]]:
    return [(one.tier, one.owner, one.dataset) for one in found.breaches if one.sli == sli]


def write_plan(settings: Settings, text: str) -> None:
    settings.home.mkdir(exist_ok=True)
    (settings.home / "slis.yaml").write_text(text)


def write_package(settings: Settings, promises: str, owner: str = "") -> None:
    """Have the inventory know a package that writes `totals`, with what it promises."""
    package = settings.home / "packages" / "daily"
    package.mkdir(parents=True)
    (package / "dk.yaml").write_text(
        f"metadata: {{name: daily, owner: '{owner}'}}\nruntime: {{command: 'true'}}\n"
        f"outputs: [{{name: totals, binding: {{namespace: lake, dataset: totals}}}}]\n{promises}\n"
    )
    write_plan(settings, "inventory: {manifests: [packages]}\n")


def test_no_dataset_is_late_while_the_graph_lacks_entries(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "_GRAPH_SIZE_MAX", 5)
    late = run_of("load", [], [dataset("orders", **CRITICAL)], 40 * 24 * HOUR_S)
    others = [run_of(f"other-{at}", [], [f"lake/other-{at}"]) for at in range(3)]
    keep_filed(settings, [late, *others, run_of("load", [], ["lake/orders"])], 1)
    found = measured(settings, record=True)
    for sli in ("coverage", "freshness", "completeness", "accuracy", "missing_provenance"):
        assert level(found, sli, "critical").is_met is None
        assert level(found, sli, "critical").unknown == "accepted entries are not in the graph yet"
    assert found.breaches == ()
    index(settings)
    found = measured(settings)
    assert level(found, "freshness", "critical").is_met is True
    assert breaches(found, "freshness") == []


def test_coverage_is_how_many_known_datasets_have_lineage(settings: Settings) -> None:
    told = [
        run_of("load", ["lake/raw"], [dataset("orders/date=2026-01-31", "s3a://lake")]),
        run_of("other", [], ["lake/unknown"]),
    ]
    keep_filed(settings, told, 1)
    (settings.home / "known.csv").write_text(
        "namespace,name,tier,owner\ns3://lake,orders,critical,\nlake,lost,critical,ben\nlake,raw,optional,\n"
        "lake,gone,optional,\n"
    )
    write_plan(settings, "inventory: {csv: [known.csv]}\n")
    found = measured(settings)
    assert values(found, "coverage") == {"critical": 0.5, "important": None, "optional": 0.5}
    assert level(found, "coverage", "critical").is_met is False
    assert level(found, "coverage", "optional").is_met is None, "nothing is promised"
    assert "names no dataset" in level(found, "coverage", "important").unknown
    assert breaches(found, "coverage") == [("critical", "ben", "lost")]


def test_coverage_knows_a_dataset_by_any_of_its_names_and_by_its_columns(settings: Settings) -> None:
    orders = dataset("orders", same=["hive/shop.orders"])
    report = dataset("report", derived={"a": [("x", "b")]})
    keep(settings.home, [run_of("load", [], [orders]), said_of(report, minute_of(60))])
    (settings.home / "known.csv").write_text(
        "name,namespace\nshop.orders,hive\nreport,lake\nx,lake\n/data/x,file\n"
    )
    write_plan(settings, "inventory: {csv: [known.csv]}\ntiers: [{datasets: 'file:*', tier: critical}]\n")
    found = measured(settings)
    assert values(found, "coverage") == {"critical": 0.0, "important": 1.0, "optional": None}
    assert breaches(found, "missing_provenance") == [("important", "", "x")], "a column of it is read"


def test_freshness_is_the_age_of_the_newest_lineage(settings: Settings) -> None:
    told = [
        run_of("old", [], [dataset("orders", **CRITICAL)], 30 * HOUR_S),
        run_of("old", [], [dataset("orders", **CRITICAL)], 2.5 * HOUR_S),
        run_of("new", [dataset("orders", **CRITICAL)], ["lake/totals"], 600.0),
        run_of("reader", ["lake/raw"], [], 1_200.0),
    ]
    keep_filed(settings, told, 2)
    found = measured(settings)
    assert level(found, "freshness", "critical").value == pytest.approx(2.5 * HOUR_S, abs=60), (
        "when it was written"
    )
    assert level(found, "freshness", "important").value == pytest.approx(1_200.0, abs=60)
    assert level(found, "freshness", "optional").value is None
    assert level(found, "freshness", "critical").is_met is False
    assert level(found, "freshness", "important").is_met is None
    assert breaches(found, "freshness") == [("critical", "", "orders")]


def test_a_manifest_promises_its_own_freshness_and_completeness(settings: Settings) -> None:
    write_package(
        settings,
        "inputs: [{name: orders, binding: {namespace: lake, dataset: orders}}]\n"
        "tier: optional\nobjective: {freshness: 2h, completeness: 0.5}\n"
        "expected: [{source: orders, target: totals}, {source: orders.total, target: totals.sum}]",
        owner="sales",
    )
    keep(settings.home, [run_of("daily", ["lake/orders"], ["lake/totals"], 3 * HOUR_S)])
    found = measured(settings)
    missed = level(found, "freshness", "optional")
    assert (missed.objective, missed.is_met) == (2 * HOUR_S, False)
    assert missed.value == pytest.approx(3 * HOUR_S, abs=60)
    assert breaches(found, "freshness") == [("optional", "sales", "totals")]
    assert [one.missed for one in found.breaches if one.sli == "freshness"] == ["3h old, more than 2h"]
    assert values(found, "completeness") == {"critical": None, "important": 0.0, "optional": 1.0}
    assert values(found, "coverage") == {"critical": None, "important": 1.0, "optional": 1.0}
    assert values(found, "accuracy") == {"critical": None, "important": None, "optional": 0.5}


@pytest.mark.parametrize(
    ("own", "hours_ago", "objective_s", "is_met"), [("5s", 0.5, 5.0, False), ("24h", 5.0, 86_400.0, True)]
)
def test_the_objective_beside_a_level_is_that_of_the_dataset_that_decides(
    settings: Settings, own: str, hours_ago: float, objective_s: float, *, is_met: bool
) -> None:
    write_package(settings, f"tier: critical\nobjective: {{freshness: {own}}}")
    told = [run_of("daily", [], ["lake/totals"], hours_ago * HOUR_S)]
    keep(settings.home, [*told, run_of("other", [], [dataset("others", **CRITICAL)], 600.0)])
    found = level(measured(settings), "freshness", "critical")
    assert (found.objective, found.is_met) == (objective_s, is_met)
    assert found.value == pytest.approx(hours_ago * HOUR_S, abs=60)


def test_a_manifest_that_wants_some_fields_tells_how_many_are_there(settings: Settings) -> None:
    write_package(settings, "objective: {completeness: 0.9}")
    outputs = [dataset("totals", types=TYPED), dataset("others", owners=OWNED, **CRITICAL)]
    keep(settings.home, [run_of("daily", [], outputs)])
    missed = {one.dataset: one.missed for one in measured(settings).breaches if one.sli == "completeness"}
    assert missed == {
        "totals": "50% of the required fields, less than 90%",
        "others": "50% of the required fields, less than 100%",
    }


def test_the_first_page_of_a_fresh_home_misses_nothing(settings: Settings) -> None:
    Journal(settings.home).close()
    took: dict[str, tuple[int, ...]] = {"query_latency": (0, 0, 0, 1), "impact_analysis": (0, 0, 0, 0)}
    served = Served("a", 1, 0, (0.1, 0.5, 1.0), took)
    found = measured(settings, record=True, served=served)
    assert found.missed == ()
    assert {one.budget_left for one in found.levels} <= {None, 1.0}
    asked = level(found, "query_latency")
    assert (asked.value, asked.is_met, asked.burn_rates) == (None, None, {})
    assert asked.unknown == "1 question within the last hour is too few; 20 are enough"


def test_a_budget_of_30_days_is_used_as_long_as_something_was_measured(settings: Settings) -> None:
    keep(settings.home, [run_of("sum", ["lake/a", "lake/b", "lake/c"], ["lake/sums"])])
    keep(settings.home, [run_of("all", [f"lake/{number}" for number in range(7)])])
    write_plan(settings, "external: ['lake/[0-9]']\n")
    served = Served("a", 0, 0, (), {"query_latency": (), "impact_analysis": ()})
    first = level(measured(settings, record=True, served=served), "missing_provenance", "important")
    assert first.value == pytest.approx(0.3)
    assert first.burn_rates["1h"] == pytest.approx(30.0)
    assert first.budget_left == pytest.approx(1 - 30.0 * 5 / (30 * 24 * 60))
    after = level(
        measured(settings, record=True, served=served, after_s=24 * HOUR_S), "missing_provenance", "important"
    )
    assert after.budget_left == pytest.approx(1 - 30.0 * (24 * 60 + 5) / (30 * 24 * 60), abs=1e-4)


def test_completeness_is_how_many_datasets_have_all_required_fields(settings: Settings) -> None:
    print_of = {"waybill_fingerprint": {"fingerprint": f"xxh3-128:{'0' * 32}"}}
    read = dataset("read", owners=OWNED, types=TYPED, version={"datasetVersion": "7"})

    def changed(name: str, how: str) -> dict[str, Any]:
        return dataset(name, lifecycleStateChange={"lifecycleStateChange": how})

    ownerless = dataset("ownerless", types=TYPED, **CRITICAL)
    told = [
        run_of("a", [], [dataset("whole", owners=OWNED, types=TYPED, **CRITICAL), ownerless]),
        run_of("b", [], [dataset("typeless", owners=OWNED, types={}, **CRITICAL)]),
        run_of("c", [read | {"inputFacets": print_of}]),
        run_of("d", [], [changed("whole", "ALTER")]),
        run_of("e", [], [changed("gone", "DROP")]),
    ]
    keep(settings.home, told)
    found = measured(settings)
    assert values(found, "completeness") == {"critical": 1 / 3, "important": 1.0, "optional": None}
    assert breaches(found, "completeness") == [("critical", "", "ownerless"), ("critical", "ann", "typeless")]
    write_plan(settings, "required: [schema]\n")
    assert level(measured(settings), "completeness", "critical").value == 2 / 3
    for needed in ("checksum", "version"):
        write_plan(settings, f"required: [owner, {needed}]\n")
        assert values(measured(settings), "completeness") == {"critical": 0, "important": 1, "optional": None}
    write_plan(settings, "required: [tags]\n")
    assert values(measured(settings), "completeness") == {"critical": 1.0, "important": 0.0, "optional": None}


def test_missing_provenance_is_how_many_reads_have_no_known_origin(settings: Settings) -> None:
    told = [
        run_of("load", ["sftp/partner"], ["lake/raw"]),
        run_of("tidy", ["lake/raw", "lake/prices"], ["lake/orders"]),
        run_of("sum", ["lake/orders"], ["lake/totals"]),
        run_of("long ago", ["lake/forgotten"], [], 60 * 24 * HOUR_S),
    ]
    keep(settings.home, told)
    assert level(measured(settings), "missing_provenance", "important").value == 0.5
    write_plan(settings, "external: ['sftp/*']\ntiers: [{datasets: '*raw', tier: critical}]\n")
    found = measured(settings)
    assert values(found, "missing_provenance") == {"critical": 0.0, "important": 1 / 3, "optional": None}
    assert level(found, "missing_provenance", "important").is_met is False
    assert breaches(found, "missing_provenance") == [("important", "", "prices")]


@pytest.mark.parametrize("filed", [0, 1])
def test_accuracy_is_how_many_expected_edges_are_seen(settings: Settings, filed: int) -> None:
    totals = dataset("totals", derived={"sum": [("orders", "total")]})
    keep_filed(settings, [run_of("a", ["lake/orders"], [totals])], filed)
    (settings.home / "sample.csv").write_text(
        "source_namespace,source,source_column,target_namespace,target,target_column\n"
        "lake,orders,,lake,totals,\nlake,prices,,lake,totals,\nlake,orders,,lake,lost,\n"
        "lake,orders,total,lake,totals,sum\nlake,orders,day,lake,totals,sum\nlake,orders,total,lake,totals,\n"
    )
    write_plan(settings, "expected: {csv: [sample.csv]}\ntiers: [{datasets: '*totals', tier: critical}]\n")
    found = measured(settings)
    assert values(found, "accuracy") == {"critical": 3 / 5, "important": 0.0, "optional": None}
    assert level(found, "accuracy", "critical").is_met is False


def test_accuracy_compares_an_analyzer_with_the_others(settings: Settings) -> None:
    text = "INSERT INTO totals SELECT a FROM orders"
    keep_filed(settings, [run_of("a", ["db/orders"], ["db/totals"], sql=text)])
    write_plan(settings, "expected: {analyzer: sql}\n")
    found = level(measured(settings), "accuracy", "important")
    assert (found.good, found.total) == (2, 3), "nobody else tells of the column"


def test_ingestion_lag_is_how_late_events_are_kept(settings: Settings) -> None:
    assert "no OpenLineage event" in level(measured(settings), "ingestion_lag").unknown
    keep(settings.home, [run_of(f"{number}", seconds_ago=number / 10) for number in range(1, 101)])
    found = level(measured(settings, after_s=5), "ingestion_lag")
    assert found.value == pytest.approx(9.5, abs=10)
    assert found.is_met is True
    write_plan(settings, "objectives: {ingestion_lag: 1s}\n")
    assert level(measured(settings, after_s=5), "ingestion_lag").is_met is False
    assert level(measured(settings, after_s=2 * HOUR_S), "ingestion_lag").value is None


def test_the_error_rate_is_what_failed_of_all_that_was_sent(settings: Settings) -> None:
    assert level(measured(settings), "error_rate").value is None
    keep(settings.home, [run_of(f"{number}") for number in range(8)])
    with contextlib.closing(Journal(settings.home)) as journal:
        Rejects(journal).add(Kind.OPENLINEAGE, [(b"{}", "it is no event")])
        for projection in ("index", "layout"):
            journal.poison.set_aside(projection, 3, "it cannot be applied")
        found = level(measured(settings, after_s=60), "error_rate")
        assert (found.value, found.good, found.total) == (2 / 9, 7, 9)
        assert found.is_met is False
        assert found.note == ""
        assert level(measured(settings, after_s=2 * HOUR_S), "error_rate").value is None


def test_queries_and_refused_accesses_are_what_a_collector_has_counted(settings: Settings) -> None:
    Journal(settings.home).close()
    assert "no collector has counted" in level(measured(settings), "query_latency").unknown
    bounds_s = (0.1, 0.5, 1.0)

    def at(minutes: int, boot: str, refused: int, *latencies: int) -> Levels:
        took = {"query_latency": latencies, "impact_analysis": (0, 0, 0, latencies[0])}
        served = Served(boot, sum(latencies) + refused, refused, bounds_s, took)
        return measured(settings, record=True, after_s=minutes * 60, served=served)

    found = at(0, "a", 0, 90, 8, 2, 0)
    assert level(found, "query_latency").value == pytest.approx(0.1 + 0.4 * 5 / 8)
    assert (level(found, "query_latency").good, level(found, "query_latency").is_met) == (98.0, True)
    assert level(found, "unauthorised_access").value == 0.0
    impact = level(found, "impact_analysis")
    assert (impact.value, impact.is_met, impact.good) == (1.0, True, 0.0), "it is beyond the last bucket"
    found = at(5, "a", 2, 90, 8, 102, 0)
    assert level(found, "query_latency").is_met is False
    refused = level(found, "unauthorised_access")
    assert (refused.value, refused.is_met, refused.burn_rates["1h"], refused.budget_left) == (
        2.0,
        False,
        2.0,
        -1.0,
    )
    found = at(10, "b", 1, 5, 0, 0, 0)
    assert level(found, "unauthorised_access").value == 3.0, "another start counts from 0"
    elsewhere = measured(settings, after_s=11 * 60)
    assert level(elsewhere, "query_latency").value == level(found, "query_latency").value
    found = at(80, "b", 1, 5, 0, 0, 0)
    assert level(found, "unauthorised_access").value == 0.0, "within the last hour"
    assert "nobody has asked" in level(found, "query_latency").unknown
    assert level(found, "unauthorised_access").burn_rates == {"6h": 3.0, "3d": 3.0}, (
        "no request in the last hour"
    )
