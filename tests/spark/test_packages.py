"""`waybill run` around PySpark: its applications and the rows of their tasks are below the package's run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stage import QUICK_JVM

from waybill.spark import fetch_listener, find_java
from waybill.spark.runtime import LISTENER_CLASS
from waybill.transport import Journal

pytestmark = pytest.mark.spark_truth

EXAMPLE = Path(__file__).parents[2] / "examples" / "pyspark"
NAME = 'daily "totals"\n\\ of 1/2'

PROGRAM = f"""
import contextlib
import runpy
import sys
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
import waybill.spark
from waybill.spark import SparkRows
from waybill.transport import AdmissionError

plain = SparkSession.builder.appName("plain").config("spark.extraListeners", "{LISTENER_CLASS}").getOrCreate()
plain.range(3).write.parquet("plain")
plain.stop()

runpy.run_path("totals.py")

def drain(rows):
    assert "waybill" not in sys.modules  # which executors need not have
    list(rows)

def fail(rows):
    raise ValueError("boom at " + next(rows)["url"])

with waybill.spark.session("rows") as spark:
    urls = ["s3://lake/a", "s3://lake/b", None, "s3://lake/a"] * 2
    frame = spark.createDataFrame([(url,) for url in urls], "url STRING").coalesce(1)
    given = dict(spark=spark, dataset=lambda row: row["url"])
    with SparkRows(**given, job="partitions") as rows:
        frame.foreachPartition(rows.of_partition(drain))
    with SparkRows(**given, job="sampled", one_in=3, written=True) as rows:
        frame.foreachPartition(rows.of_partition(drain))
    with SparkRows(**given, job="frames") as rows:
        frame.mapInPandas(rows.of_frames(lambda frames: frames), frame.schema).collect()
    with SparkRows(spark, dataset=lambda values: values[0], job="calls") as rows:
        frame.select(udf(rows.of_values(lambda url: url), "string")("url")).collect()
    with contextlib.suppress(PythonException), SparkRows(**given, job="failing") as rows:
        frame.foreachPartition(rows.of_partition(fail))
    with contextlib.suppress(AdmissionError), SparkRows(spark, dataset=len, job="nameless") as rows:
        frame.foreachPartition(rows.of_partition(drain))
"""

Told = Callable[[str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Run the example's package, with a program that runs more beside it; gives the events of a job."""
    folder = tmp_path_factory.mktemp("package")
    home, package = folder / "home", shutil.copytree(EXAMPLE, folder / "pyspark")
    manifest = (package / "dk.yaml").read_text(encoding="utf-8")
    manifest = manifest.replace("name: daily-totals", f"name: {json.dumps(NAME)}")
    (package / "dk.yaml").write_text(manifest.replace("totals.py", "program.py"), encoding="utf-8")
    (package / "program.py").write_text(PROGRAM, encoding="utf-8")
    (package / "orders.csv").write_text("id,amount\n1,7\n2,8\n", encoding="utf-8")
    options = f"--driver-class-path {fetch_listener()} --driver-java-options '{QUICK_JVM}'"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_SUBMIT_ARGS": f"{options} --conf spark.ui.enabled=false pyspark-shell",
        "WAYBILL_RUNNER": "none",
    }
    command = [sys.executable, "-m", "waybill.cli", "run", str(package), "--home", str(home)]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    journal = Journal(home, to_read=True)
    events = [json.loads(entry.body) for entry in journal.read(0, limit=1_000) if entry.event]
    journal.close()
    return lambda job: [event for event in events if event["job"]["name"] == job]


def parent_of(event: dict[str, Any], *, root: bool = False) -> tuple[str, str, str]:
    """The run that an event says its own is a part of, or the first of all above it."""
    parent = event["run"]["facets"]["parent"]
    named = parent["root"] if root else parent
    return named["run"]["runId"], named["job"]["namespace"], named["job"]["name"]


@pytest.mark.parametrize("application", ["plain", "totals", "rows"])
def test_an_application_is_below_the_run_whether_tracked_or_with_the_listener_only(
    application: str, told: Told
) -> None:
    package, events = told(NAME), told(application)
    assert [event["eventType"] for event in package] == ["START", "COMPLETE"]
    assert {event["eventType"] for event in events} >= {"START", "COMPLETE"}
    for event in events:
        assert parent_of(event) == (package[0]["run"]["runId"], "shop", NAME)


@pytest.mark.parametrize(
    ("job", "looked_at", "by_name"),
    [
        ("partitions", 8, {"a": 4, "b": 2}),
        ("sampled", 3, {"a": 2}),
        ("frames", 8, {"a": 4, "b": 2}),
        ("calls", 8, {"a": 4, "b": 2}),
    ],
)
def test_the_rows_of_tasks_are_counted_by_their_datasets(
    job: str, looked_at: int, by_name: dict[str, int], told: Told
) -> None:
    start, end = told(job)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    counted = {tag["key"]: tag["value"] for tag in end["run"]["facets"]["tags"]["tags"]}
    assert (counted["rows"], counted["rows_looked_at"]) == ("8", str(looked_at))
    side, count = ("output", "outputStatistics") if job == "sampled" else ("input", "inputStatistics")
    assert by_name == {one["name"]: one[f"{side}Facets"][count]["rowCount"] for one in end[f"{side}s"]}
    (application,) = {event["run"]["runId"] for event in told("rows")}
    assert (parent_of(end)[0], parent_of(end, root=True)) == (application, parent_of(told("rows")[0]))


def test_tasks_that_fail_are_a_run_that_has_failed(told: Told) -> None:
    assert [event["eventType"] for event in told("failing")] == ["START", "FAIL"]
    assert "boom at s3://lake/a" in told("failing")[-1]["run"]["facets"]["errorMessage"]["message"]


def test_a_row_whose_dataset_has_no_name_fails_the_run_with_the_reason(told: Told) -> None:
    assert [event["eventType"] for event in told("nameless")] == ["START", "FAIL"]
    assert "dataset: is 1; give a path" in told("nameless")[-1]["run"]["facets"]["errorMessage"]["message"]
