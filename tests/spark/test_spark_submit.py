"""Programs that spark-submit starts: plain ones with an endpoint elsewhere, and tracked ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.facets import PRODUCER, FinalState
from waybill.spark import fetch_listener, find_java, spark_home
from waybill.spark.runtime import LISTENER_CLASS
from waybill.transport import Settings, flush

if TYPE_CHECKING:
    from conftest import Endpoint, Ran, Run

READS_AND_WRITES = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
spark.range(50).selectExpr("id", "id % 3 AS k").write.parquet(OUT + "/a")
spark.read.parquet(OUT + "/a").groupBy("k").count().write.parquet(OUT + "/b")
spark.stop()
"""

PLAIN = {
    "spark.master": "local[2]",
    "spark.app.name": "plain",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}

WITHOUT_UI = {"PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --master local[2] pyspark-shell"}


def submit(conf: dict[str, str]) -> tuple[str, ...]:
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    return (str(spark_home() / "bin" / "spark-submit"), *options)


def env() -> dict[str, str | None]:
    return {"JAVA_HOME": str(find_java().home)}


@pytest.fixture(scope="module")
def plain(run: Run, endpoint: Endpoint) -> Ran:
    conf = {
        **PLAIN,
        "spark.driver.extraClassPath": str(fetch_listener()),
        "spark.extraListeners": LISTENER_CLASS,
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": endpoint.url,
        "spark.openlineage.transport.compression": "gzip",
        "spark.openlineage.namespace": "tests",
    }
    ran = run(READS_AND_WRITES, command=submit(conf), env=env(), home=endpoint.home)
    assert ran.status == 0, ran.stderr
    return ran


def test_a_plain_spark_submit_leaves_the_trail_at_the_endpoint(plain: Ran) -> None:
    (first,), (second,) = plain.written("a"), plain.written("b")
    assert {first.final_state, second.final_state} == {FinalState.COMPLETE}
    assert second.data_source == f"file/{plain.out}/a"
    assert plain.application("plain").final_state is FinalState.COMPLETE


READS_THE_LAYOUT = """
rows = spark.read.parquet(sys.argv[3] + "/provenance/compacted/*/*/*.parquet")
with open(OUT + ".answers", "w") as answers:
    print(rows.schema.simpleString(), file=answers)
    for condition in [
        "final_state = 'COMPLETE'",
        "data_sink IS NULL",
        "parent_did IS NULL AND annotations IS NULL",
        "size(transforms) = 1 AND transforms[0] = data_source",
        "completed >= created AND completed > timestamp'2026-01-01'",
    ]:
        print(rows.where(condition).count(), file=answers)
spark.stop()
"""


@pytest.fixture(scope="module")
def elsewhere(plain: Ran, run: Run, endpoint: Endpoint) -> Ran:
    """A program that is configured for the endpoint, and reads the files made of the plain one's events."""
    given = {"home": plain.home, "runner": "none", "system_name": "tests", "provenance_enabled": True}
    report = flush(Settings.load(given, env={}, cwd=plain.folder))
    assert report.problems == {}
    assert report.files
    begins = f"waybill.spark.configure(SparkSession.builder, endpoint={endpoint.url!r}, system_name='tests')"
    text = READS_AND_WRITES.replace("SparkSession.builder", begins).replace("spark.stop()", READS_THE_LAYOUT)
    ran = run(text, arguments=(str(plain.home),), env=env() | WITHOUT_UI, home=endpoint.home)
    assert ran.status == 0, ran.stderr
    return ran


def test_a_program_configured_for_an_endpoint_leaves_the_same_trail(elsewhere: Ran) -> None:
    (record,) = elsewhere.written("b")
    assert (record.system_name, record.data_source) == ("tests", f"file/{elsewhere.out}/a")
    assert not [event for event in elsewhere.events if event.producer == PRODUCER]


def test_the_files_made_of_it_read_in_spark_with_the_right_types(plain: Ran, elsewhere: Ran) -> None:
    schema, *answers = Path(f"{elsewhere.out}.answers").read_text().splitlines()
    assert schema == (
        "struct<did:string,parent_did:string,system_name:string,data_source:string,filename:string,"
        "transforms:array<string>,data_sink:string,final_state:string,created:timestamp,completed:timestamp,"
        "annotations:map<string,string>>"
    )
    records = plain.records
    assert answers == [
        str(sum(fact))
        for fact in zip(
            *(
                (
                    record.final_state == "COMPLETE",
                    record.data_sink is None,
                    record.parent_did is None and record.annotations is None,
                    record.transforms == (record.data_source,),
                    True,
                )
                for record in records
            ),
            strict=True,
        )
    ]


@pytest.fixture(scope="module")
def tracked(run: Run) -> Ran:
    text = """
    from pyspark.sql import SparkSession
    spark = waybill.spark.configure(SparkSession.builder, tags={"team": "night"}, **SETTINGS).getOrCreate()
    assert SparkSession.builder.getOrCreate() is spark
    spark.range(50).selectExpr("id", "id % 3 AS k").write.parquet(OUT + "/a")
    try:
        spark.read.parquet(OUT + "/a").write.parquet(OUT + "/a")
    except Exception:
        pass
    sys.exit(4)
    """
    ran = run(text, command=submit(PLAIN), env=env())
    assert ran.status == 4, ran.stderr
    return ran


def test_a_tracked_program_may_be_started_by_spark_submit(tracked: Ran) -> None:
    states = {record.final_state for record in tracked.written("a")}
    assert states == {FinalState.COMPLETE, FinalState.ERROR}
    application = tracked.application("plain")
    assert application.final_state is FinalState.ERROR
    assert application.annotations == {"errorCause": "the program exited with status 4", "team": "night"}
