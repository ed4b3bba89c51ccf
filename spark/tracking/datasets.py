"""The datasets of the listener's events, by what a run really reads and writes.

The listener calls a file that is read through an RDD by its folder. It calls the branches and metadata tables
of an Iceberg table by the table's own place, as if they had each other's rows and columns.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from waybill.facets.event import DatasetName
from waybill.transport.clock import SYSTEM_CLOCK

from .executions import load_table
from .plans import dataset_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("waybill.spark")

_SELECTED: Final = re.compile(
    r"[^.]+\..+\.((?:branch|tag|snapshot_id|at_timestamp)_[^.]+|history|refs|snapshots|metadata_log_entries"
    r"|partitions|position_deletes|(?:all_)?(?:data_|delete_)?files|(?:all_)?(?:entries|manifests))"
)
"""The name of a part of an Iceberg table, whose last word selects the part."""
_JOB_KNOWN_S: Final = 1.0
"""How long the status store may lag behind the listener; usually it is some milliseconds."""
_FILES_MAX: Final = 100
"""The most files that are named instead of the pattern that they match."""
_RUNS_MAX: Final = 1000
"""The most runs that are remembered."""

_Json = dict[str, Any]
_Value = TypeVar("_Value")


class Datasets:
    """Corrects the datasets of an application's events, in the order in which its listener sends them."""

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark
        self._spark = java
        self._jvm = java.sparkContext._jvm  # noqa: SLF001 - the way to the JVM
        self._context = java.sparkContext._jsc.sc()  # noqa: SLF001 - as above
        self._files: dict[str, dict[DatasetName, set[DatasetName]]] = {}
        """For each run the files that it read through RDDs, by the names that the listener has for them."""
        self._staged: dict[str, str] = {}
        """For each run the branch or the staged snapshot to which its session's options lead its writes."""

    def correct(self, body: bytes) -> bytes:
        """Return an event with the right datasets; as it is where Spark does not tell them."""
        try:
            event: _Json = msgspec.json.decode(body)
            is_changed = [self._name_files(event), self._name_parts(event)]
        except Exception:
            log.warning("the datasets of an event cannot be checked", exc_info=True)
            return body
        return msgspec.json.encode(event) if any(is_changed) else body

    def _name_files(self, event: _Json) -> bool:
        """Name the files that are read through RDDs; those of a query once one of its jobs is known."""
        run, inputs = event["run"], event.get("inputs") or []
        of_rdds = [one for one in inputs if not one.get("facets", {}).keys() - {"dataSource"}]
        if not of_rdds:
            return False
        others = [one for one in inputs if one not in of_rdds]
        job = run.get("facets", {}).get("spark_jobDetails")
        if job is None and event["eventType"] == "START":
            event["inputs"] = others  # The event of its first job follows and names them.
            return True
        nothing: dict[DatasetName, set[DatasetName]] = defaultdict(set)
        known = _remembered(self._files, run["runId"], nothing)
        names = [DatasetName(one["namespace"], one["name"].strip()) for one in of_rdds]
        if job is not None:
            nodes = self._rdds_of(job["jobId"])
            for name, file in self._files_at(nodes):
                known[name].add(file)
            if "FileScanRDD" in nodes and not others:
                # As of `DataFrame.rdd`, of which Spark knows no more than the listener says.
                known.update({name: known[name] | {name} for name in names})
        files = dict.fromkeys(file for name in names for file in sorted(known.get(name, {name}), key=str))
        event["inputs"] = [*others, *({"namespace": one.namespace, "name": one.name} for one in files)]
        return True

    def _rdds_of(self, job: int) -> set[str]:
        """The names of the RDDs of a Spark job; those that are read from files are called by their paths."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # as in `executions`

        deadline_s = SYSTEM_CLOCK.monotonic_s() + _JOB_KNOWN_S
        while True:
            try:
                graphs = self._context.statusStore().operationGraphForJob(job)
                break
            except Py4JJavaError:
                if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                    return set()
                SYSTEM_CLOCK.sleep(0.01)
        clusters = [graphs.apply(place).rootCluster() for place in range(graphs.size())]
        names: set[str] = set()
        for cluster in clusters:
            inner, nodes = cluster.childClusters(), cluster.childNodes()
            clusters += [inner.apply(place) for place in range(inner.size())]
            names.update(str(nodes.apply(place).name()) for place in range(nodes.size()))
        return names

    def _files_at(self, paths: set[str]) -> Iterator[tuple[DatasetName, DatasetName]]:
        """The files and folders at the paths of RDDs, each after the listener's name for it."""
        hadoop = self._jvm.org.apache.hadoop
        for text in filter(None, paths):
            options = hadoop.mapred.JobConf(self._context.hadoopConfiguration())
            hadoop.mapred.FileInputFormat.setInputPaths(options, text)
            for path in hadoop.mapred.FileInputFormat.getInputPaths(options):
                found = list(path.getFileSystem(options).globStatus(path) or ())
                whole = dataset_at(str(path))
                if len(found) == 1 and found[0].isFile() and str(found[0].getPath()) == str(path):
                    yield dataset_at(str(path.getParent())), whole
                elif len(found) <= _FILES_MAX:
                    yield from ((whole, dataset_at(str(one.getPath()))) for one in found)

    def _name_parts(self, event: _Json) -> bool:
        """Give the branches and metadata tables of Iceberg names of their own, also as origins."""
        inputs, outputs = event.get("inputs") or [], event.get("outputs") or []
        renamed: dict[int, str] = {}
        for dataset in (*inputs, *outputs):
            facets = dataset.get("facets", {})
            if facets.get("storage", {}).get("storageLayer") != "iceberg" or "symlinks" not in facets:
                continue
            identifier = facets["symlinks"]["identifiers"][0]
            selected = _SELECTED.fullmatch(identifier["name"])
            part = selected[1] if selected else ""
            if not part and dataset in outputs and (part := self._staged_as(event, facets)):
                identifier["name"] += f".{part}"
            if part and not dataset["name"].endswith(f"/{part}"):
                renamed[id(dataset)] = f"{dataset['name']}.{part}"
        # A column that the table has, too, is the table's.
        read = sorted(inputs, key=lambda one: id(one) not in renamed)
        owners = {
            (one["namespace"], one["name"], field["name"]): renamed.get(id(one), one["name"])
            for one in read
            for field in one.get("facets", {}).get("schema", {}).get("fields", ())
        }
        for origin in (origin for one in outputs if renamed for origin in _origins_of(one)):
            whole = origin["namespace"], origin["name"], origin["field"]
            origin["name"] = owners.get(whole, origin["name"])
        for dataset in (*inputs, *outputs):
            dataset["name"] = renamed.get(id(dataset), dataset["name"])
        return bool(renamed)

    def _staged_as(self, event: _Json, facets: _Json) -> str:
        """The part of an Iceberg table to which the session's options lead a write; empty for the whole."""
        run_id, catalog = event["run"]["runId"], facets.get("catalog", {}).get("name")
        if event["eventType"] == "START" and catalog is not None:
            branch, snapshot = (self._spark.conf.get(f"spark.wap.{one}", None) for one in ("branch", "id"))
            names = [catalog, *facets["symlinks"]["identifiers"][0]["name"].split(".")]
            if branch or snapshot:
                table = load_table(self._spark, names)
                if table.properties().get("write.wap.enabled") == "true":
                    _remembered(self._staged, run_id, f"branch_{branch}" if branch else f"wap_{snapshot}")
        return self._staged.get(run_id, "")


def _origins_of(output: _Json) -> Iterator[_Json]:
    """The columns that those of an output come from."""
    lineage = output.get("facets", {}).get("columnLineage", {})
    yield from lineage.get("dataset", ())
    for field in lineage.get("fields", {}).values():
        yield from field.get("inputFields", ())


def _remembered(known: dict[str, _Value], run_id: str, value: _Value) -> _Value:
    """What is known of a run, else this value; if there are many, the oldest run is forgotten."""
    if len(known) >= _RUNS_MAX and run_id not in known:
        known.pop(next(iter(known), run_id))
    return known.setdefault(run_id, value)
