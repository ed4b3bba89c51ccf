"""The transforms that files pass are jobs of the graph, and the same ones that Marquez's page draws."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from keeping import keep, ran

from waybill.facets import FinalState
from waybill.facets.flows import path_in
from waybill.lineage import Lineage
from waybill.lineage.graph import shown
from waybill.lineage.graph.observing import TRANSFORMS_MAX
from waybill.marquez.graph import JobGraph
from waybill.marquez.graph.job_graph import Outcome
from waybill.transport import Journal, Settings, Tracker, flush

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from waybill.lineage.graph import Reach

EdgeName = tuple[str, str, str]
EDGES_OF_FILES = 14


def pass_files(settings: Settings) -> None:
    """Files that are split, fail, are filtered or cancelled, or reach sinks, of which two are datasets."""
    pond = {"pond": "s3://lake/orders"}
    with Tracker(settings=settings) as tracker:
        with tracker.file("year.csv", data_source="years") as year, year.transform("unpack"):
            months = year.split([f"{number}.csv" for number in range(4)], data_source="months")
        cancelled, failed, filtered, complete = months
        cancelled.cancel()
        with failed.transform("validate"):
            failed.error("torn")
        with filtered.transform("validate"):
            filtered.filter("too few")
        with complete.transform("validate"), complete.transform("enrich"):
            with complete.branch() as to_lake, to_lake.transform("partition"):
                to_lake.egress("lake", dataset="s3://lake/months")
            with complete.branch() as to_report, to_report.transform("(summarise) · all"):
                to_report.egress("report")
        with tracker.file("direct.csv", data_source="orders", data_sinks=pond) as file:
            file.egress("pond")
        with tracker.file("lost.csv", data_source="orders"):
            pass


def sent_to_marquez(home: Path) -> set[EdgeName]:
    """The edges in what Marquez is sent of the jobs of flows."""
    graph = JobGraph({})
    with closing(Journal(home)) as journal:
        for entry in journal.read(0):
            if entry.run_event is not None:
                graph.learn_datasets(entry.run_event.outputs or ())
            if (path := path_in(entry.event)) is not None:
                graph.count(graph.learn(path, 1), Outcome(FinalState.COMPLETE), entry)
    edges: set[EdgeName] = set()
    for node in graph.due(1, caught_up=True):
        event = json.loads(graph.event(node) or b"")
        job = "/".join(node)
        edges |= {("read", f"{one['namespace']}/{one['name']}", job) for one in event["inputs"]}
        edges |= {("write", job, f"{one['namespace']}/{one['name']}") for one in event["outputs"]}
    return edges


EDGES = """
SELECT edge.kind, a.namespace || '/' || a.name, b.namespace || '/' || b.name FROM graph_edge AS edge
JOIN graph_node AS a ON a.id = source JOIN graph_node AS b ON b.id = target
WHERE edge.kind IN ('read', 'write')
"""


def in_index(home: Path, own_jobs: Iterable[str]) -> set[EdgeName]:
    """The edges between jobs and datasets but for those of the jobs that the runs of files belong to."""
    with closing(sqlite3.connect(home / "index.db")) as database:
        rows = database.execute(EDGES).fetchall()
    jobs = set(own_jobs)
    return {(kind, a, b) for kind, a, b in rows if (b if kind == "read" else a) not in jobs}


def names(reach: Reach) -> list[tuple[int, str]]:
    return [(one.distance, shown(one.node)) for one in reach.nodes]


def test_the_graph_has_the_edges_that_marquez_is_sent(settings: Settings) -> None:
    pass_files(settings)
    assert flush(settings).problems == {}
    system = settings.system_name
    found = in_index(settings.home, [f"{system}/{source}" for source in ("years", "months", "orders")])
    assert found == sent_to_marquez(settings.home)
    assert ("write", f"{system}/partition · months", "s3://lake/months") in found
    assert ("write", f"{system}/(to pond) · orders", "s3://lake/orders") in found
    assert ("write", f"{system}/(split) · years", f"{system}/months") in found
    assert len(found) == EDGES_OF_FILES


def test_a_flow_is_followed_through_its_transforms(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker:
        for number in range(2):
            with (
                tracker.file(f"{number}.csv", data_source="orders") as file,
                file.transform("decompress"),
                file.transform("load"),
            ):
                file.egress("lake")
        with tracker.file("torn.csv", data_source="orders") as torn, torn.transform("decompress"):
            torn.error("torn")
    lineage, system = Lineage.open(settings.home), settings.system_name
    decompress, load = (f"{system}/{name} · orders" for name in ("decompress", "load"))
    lake, orders = f"{system}/lake", f"{system}/orders"
    of_orders = lineage.dependencies("orders", up=None, down=None)
    assert names(of_orders.upstream) == [(1, orders)]
    assert sorted(names(of_orders.downstream)) == [(1, decompress), (1, lake), (1, load), (2, decompress)]
    upstream = [(1, load), (1, orders), (2, decompress), (2, orders), (3, decompress)]
    assert sorted(names(lineage.dependencies(lake, up=None).upstream)) == upstream
    of_load = lineage.dependencies("load · orders", up=None, down=None)
    assert names(of_load.upstream) == [(1, decompress), (2, decompress), (3, orders)]
    assert names(of_load.downstream) == [(1, lake)]
    last_runs = [lineage.dependencies(f"{name} · orders").last_run for name in ("load", "decompress")]
    assert [(run.run, run.state) for run in last_runs if run] == [(file.did, "COMPLETE"), (torn.did, "ERROR")]
    assert lineage.duplicate_producers() == ()
    assert [shown(one.node) for one in lineage.search("transform load").nodes] == [load]


def test_a_job_of_a_flow_has_the_owners_and_tags_of_the_job_of_its_files(home: Path) -> None:
    of_job: dict[str, Any] = {
        "ownership": {"owners": [{"name": "team:flights"}]},
        "tags": {"tags": [{"key": "tier", "value": 1}]},
        "documentation": {"description": "Ask Ann."},
    }
    path = {"waybill_deltaFile": {"did": "f", "transforms": ["load"], "dataSink": "lake"}}
    told = ran("edge/in", ["edge/in"], run="f", facets=path, **of_job)
    lineage = keep(home, [told, ran("edge/fetch", ["edge/before"], ["edge/in"], -60)])
    job = next(one for one in lineage.impact("edge/before").nodes if one.node.name == "load · in")
    assert (job.owners, job.tier) == (("team:flights",), "1")
    assert [shown(one.node) for one in lineage.search("ann load").nodes] == ["edge/load · in"]


def test_a_path_of_very_many_transforms_tells_nothing_of_them(settings: Settings) -> None:
    with Tracker(settings=settings) as tracker, tracker.file("a.csv", data_source="many") as file:
        for number in range(TRANSFORMS_MAX + 1):
            file.transform(f"t{number}").__enter__()
        file.egress("lake")
    found = Lineage.open(settings.home).dependencies("many", down=None).downstream
    assert names(found) == [(1, f"{settings.system_name}/lake")]
