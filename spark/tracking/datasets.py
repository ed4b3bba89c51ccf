"""The datasets of the listener's events, by what a run really reads and writes.

The listener calls a file that is read through an RDD by its folder. It calls the branches and metadata tables
of an Iceberg table by the table's own place, as if they had each other's rows and columns.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waybill.facets.event import DatasetName

from .executions import each_of, load_table
from .plans import dataset_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("waybill.spark")

_SELECTED: Final = re.compile(
    r"[^.]+\..+\.((?:branch|tag|snapshot_id|at_timestamp)_[^.]+|history|refs|snapshots|metadata_log_entries"
    r"|partitions|position_deletes|(?:all_)?(?:data_|delete_)?files|(?:all_)?(?:entries|manifests))"
)
"""The name of a part of an Iceberg table, whose last word selects the part."""
_SIGNS: Final = b'","inputFacets":', b'"}},"inputFacets":', b'"storageLayer":"iceberg"'
"""What the listener says of a dataset without columns, as RDDs read it, and of tables of Iceberg."""
_FILES_MAX: Final = 100
"""The most files that are named instead of the pattern that they match."""
_RUNS_MAX: Final = 1000
"""The most runs that are remembered."""

_Json = dict[str, Any]


class _Run(msgspec.Struct):
    """What is known of a run.

    Attributes:
        jobs: its Spark jobs that the status store does not know yet.
        files: those that it read through RDDs, by the names that the listener has for them.
        staged: the branch or the staged snapshot to which its session's options lead its writes.
    """

    jobs: list[int] = msgspec.field(default_factory=list)
    files: dict[DatasetName, set[DatasetName]] = msgspec.field(default_factory=lambda: defaultdict(set))
    staged: str = ""


class Datasets:
    """Corrects the datasets of an application's events, in the order in which its listener sends them."""

    def __init__(self, spark: SparkSession) -> None:
        java: Any = spark
        self._spark = java
        self._jvm = java.sparkContext._jvm  # noqa: SLF001 - the way to the JVM
        self._context = java.sparkContext._jsc.sc()  # noqa: SLF001 - as above
        self._runs: dict[str, _Run] = {}

    def correct(self, body: bytes) -> bytes:
        """Return an event with the right datasets; as it is where Spark does not tell them."""
        if not any(sign in body for sign in _SIGNS):
            return body
        try:
            event: _Json = msgspec.json.decode(body)
            is_changed = [self._name_files(event), self._name_parts(event)]
        except Exception:
            log.warning("the datasets of an event cannot be checked", exc_info=True)
            return body
        return msgspec.json.encode(event) if any(is_changed) else body

    def _name_files(self, event: _Json) -> bool:
        """Name the files that are read through RDDs; those of a query once its jobs are known."""
        run, inputs = event["run"], event.get("inputs") or []
        of_rdds = [one for one in inputs if not one.get("facets", {}).keys() - {"dataSource"}]
        if not of_rdds:
            return False
        others = [one for one in inputs if one not in of_rdds]
        known = self._run_of(run["runId"])
        if (job := run.get("facets", {}).get("spark_jobDetails")) is not None:
            known.jobs.append(job["jobId"])
        names = [DatasetName(one["namespace"], one["name"].strip()) for one in of_rdds]
        for number in tuple(known.jobs):
            if (rdds := self._rdds_of(number)) is None:
                continue
            known.jobs.remove(number)
            for name, file in self._files_at(rdds):
                known.files[name].add(file)
            if "FileScanRDD" in rdds and not others:
                # As of `DataFrame.rdd`, of which Spark knows no more than the listener says.
                for name in names:
                    known.files[name].add(name)
        # While it runs, a later event may explain a name.
        is_open = event["eventType"] in {"START", "RUNNING"}
        files = {
            file: {"namespace": file.namespace, "name": file.name}
            for name in names
            for file in sorted(known.files.get(name, set() if is_open else {name}), key=str)
        }
        event["inputs"] = [*others, *files.values()]
        return True

    def _rdds_of(self, job: int) -> set[str] | None:
        """The names of a Spark job's RDDs, of files their paths; None: the status store lacks the job yet."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # as in `executions`

        try:
            graphs = self._context.statusStore().operationGraphForJob(job)
        except Py4JJavaError:
            return None
        clusters = [graph.rootCluster() for graph in each_of(graphs)]
        names: set[str] = set()
        for cluster in clusters:
            clusters += each_of(cluster.childClusters())
            names.update(str(node.name()) for node in each_of(cluster.childNodes()))
        return names

    def _files_at(self, names: set[str]) -> Iterator[tuple[DatasetName, DatasetName]]:
        """The files and folders that RDDs are called by, each after the listener's name for it."""
        hadoop = self._jvm.org.apache.hadoop
        options = hadoop.mapred.JobConf(self._context.hadoopConfiguration())
        for text in names:
            if text.endswith("RDD"):
                continue  # It is called by its class.
            with contextlib.suppress(Exception):  # its program or a format called it so: that is no path
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
        known, catalog = self._run_of(event["run"]["runId"]), facets.get("catalog", {}).get("name")
        if event["eventType"] == "START" and catalog is not None:
            branch, snapshot = (self._spark.conf.get(f"spark.wap.{one}", None) for one in ("branch", "id"))
            names = [catalog, *facets["symlinks"]["identifiers"][0]["name"].split(".")]
            if branch or snapshot:
                table = load_table(self._spark, names)
                if table.properties().get("write.wap.enabled") == "true":
                    known.staged = f"branch_{branch}" if branch else f"wap_{snapshot}"
        return known.staged

    def _run_of(self, run_id: str) -> _Run:
        """What is known of a run; if there are many, the oldest one is forgotten."""
        if len(self._runs) >= _RUNS_MAX and run_id not in self._runs:
            del self._runs[next(iter(self._runs))]  # it is not empty
        return self._runs.setdefault(run_id, _Run())


def _origins_of(output: _Json) -> Iterator[_Json]:
    """The columns that those of an output come from."""
    lineage = output.get("facets", {}).get("columnLineage", {})
    yield from lineage.get("dataset", ())
    for field in lineage.get("fields", {}).values():
        yield from field.get("inputFields", ())
