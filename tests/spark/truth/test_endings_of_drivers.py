"""How a driver ends, and what that does to the write that was under way."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from endings import ending
from stage import CTRL_C_BREAKS_PYSPARK

from waybill.facets import EVIDENCE, PRODUCER, EventType, FinalState

if TYPE_CHECKING:
    from stage import Play, Scene

pytestmark = pytest.mark.spark_truth

COMPLETE, ERROR, CANCELLED = FinalState.COMPLETE, FinalState.ERROR, FinalState.CANCELLED

BEGIN = """
import os, signal, subprocess, sys, threading, time
from pyspark.sql import functions as F

spark = waybill.spark.session("driver", **SETTINGS, **LOCAL)
spark.sparkContext.setLogLevel("OFF")
slow = F.udf(lambda value: time.sleep(0.5) or value, "long")
spark.range(10).write.parquet(OUT + "/before")

def write_slowly():
    spark.range(100).repartition(2).withColumn("x", slow("id")).write.parquet(OUT + "/slow")

def once_it_writes(work):
    def wait():
        while not os.path.exists(OUT + "/slow/_temporary"):
            time.sleep(0.1)
        time.sleep(1)
        work()
    threading.Thread(target=wait, daemon=True).start()

"""


def ended(play: Play, text: str, status: int) -> Scene:
    return play(BEGIN + text, status=status, tells=False)


def application(scene: Scene) -> tuple[FinalState, str | None]:
    record = scene.ran.application("driver")
    return record.final_state, (record.annotations or {}).get("errorCause")


@ending(
    "a driver", "it exits normally, without `stop()`", really="exit status 0", record="application COMPLETE"
)
def test_a_driver_that_ends(play: Play) -> None:
    scene = ended(play, "", 0)
    assert scene.states("before") == [COMPLETE]
    assert application(scene) == (COMPLETE, None)


@ending(
    "a driver",
    "an uncaught exception",
    really="exit status 1",
    record="application ERROR with the cause; finished writes stay COMPLETE",
)
def test_a_driver_that_raises(play: Play) -> None:
    scene = ended(play, "raise LookupError('no dashboard')", 1)
    assert scene.states("before") == [COMPLETE]
    assert application(scene) == (ERROR, "LookupError: no dashboard")


@ending(
    "a driver", "`sys.exit(3)`", really="exit status 3", record="application ERROR, “exited with status 3”"
)
def test_a_driver_that_exits_with_a_status(play: Play) -> None:
    scene = ended(play, "sys.exit(3)", 3)
    assert application(scene) == (ERROR, "the program exited with status 3")


@ending(
    "a driver",
    "an exception in a notebook's cell, the kernel continues",
    really="later cells run",
    record="application COMPLETE",
)
def test_a_driver_whose_cell_raises(play: Play) -> None:
    cells = """
import builtins, code
builtins.get_ipython = lambda: None  # as a kernel of IPython's does
shell = code.InteractiveInterpreter(globals())
shell.runcode("raise LookupError('in a cell')")
shell.runcode("spark.range(3).write.parquet(OUT + '/after')")
shell.runcode("spark.stop()")
"""
    scene = ended(play, cells, 0)
    assert scene.states("after") == [COMPLETE]
    assert application(scene) == (COMPLETE, None)


@ending(
    "a driver",
    "SIGTERM as soon as a write has returned",
    really="exit status 143, the files are there",
    record="the write COMPLETE, the application CANCELLED",
)
def test_a_driver_that_is_told_to_end_between_two_writes(play: Play) -> None:
    scene = ended(play, "os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", -signal.SIGTERM)
    assert scene.states("before") == [COMPLETE]
    assert application(scene)[0] is CANCELLED


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@ending(
    "a driver",
    "SIGTERM or Ctrl-C in the middle of a write",
    really="exit status 143 or 130, no `_SUCCESS`; on Ctrl-C, PySpark 3.5 and 4.0 crash, status 1",
    record="the write and the application CANCELLED; if PySpark crashes, the application ERROR",
)
def test_a_driver_that_is_told_to_end_within_a_write(play: Play, name: str) -> None:
    again = "time.sleep(0.1), os.kill(os.getpid(), signal.SIGTERM)" if name == "SIGTERM" else ""
    text = f"once_it_writes(lambda: (os.kill(os.getpid(), signal.{name}), {again}))\nwrite_slowly()"
    breaks_down = name == "SIGINT" and CTRL_C_BREAKS_PYSPARK
    scene = ended(play, text, 1 if breaks_down else -signal.Signals[name])
    assert not scene.is_committed("slow")
    assert scene.states("before") == [COMPLETE]
    assert scene.states("slow") == [CANCELLED]
    assert application(scene)[0] is (ERROR if breaks_down else CANCELLED)
    ours = [event.eventType for event in scene.ran.events if event.producer == PRODUCER]
    aborted = [kind for kind in ours if kind is not EventType.COMPLETE]
    assert breaks_down or aborted == [EventType.ABORT] * 2


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(5)"])
@ending(
    "a driver",
    "`kill -9` or `os._exit` in the middle of a write",
    really="no `_SUCCESS`",
    record="never COMPLETE; CANCELLED, marked as inferred, once Waybill sees that the process is gone",
)
def test_a_driver_that_is_killed_within_a_write(play: Play, how: str) -> None:
    status = 5 if "_exit" in how else -signal.SIGKILL
    scene = ended(play, f"once_it_writes(lambda: {how})\nwrite_slowly()", status)
    assert not scene.is_committed("slow")
    assert scene.states("slow") == []
    assert scene.states("before") == [COMPLETE]
    scene.ran.infer_ends()
    assert scene.states("slow") == [CANCELLED]
    assert (scene.record("slow").annotations or {})[EVIDENCE].startswith("inferred: ")


@ending(
    "a driver",
    "`kill -9` right after a write returned, before the listener reported that",
    really="`_SUCCESS`, newer than the write's start",
    record="COMPLETE, marked as inferred, once Waybill sees that the process is gone",
)
def test_a_driver_that_is_killed_after_a_write(play: Play) -> None:
    text = """
keep = spark.sparkContext.waybill._receiver._keep
is_end = lambda body: b'"COMPLETE"' in body and b"_after" in body
spark.sparkContext.waybill._receiver._keep = lambda body: None if is_end(body) else keep(body)
spark.range(10).write.parquet(OUT + "/after")
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60000)
os.kill(os.getpid(), signal.SIGKILL)
"""
    scene = ended(play, text, -signal.SIGKILL)
    assert scene.is_committed("after")
    assert scene.states("after") == []
    scene.ran.infer_ends()
    assert scene.states("after") == [COMPLETE]
    evidence = (scene.record("after").annotations or {})[EVIDENCE]
    assert evidence.startswith("inferred: ")
    assert evidence.endswith("but _SUCCESS of its output is newer than its start")


@ending(
    "a driver",
    "the listener breaks down, and the driver exits normally",
    really="exit status 0, the files are there",
    record="the application COMPLETE; a write that the listener did not end COMPLETE, marked as inferred",
)
def test_a_driver_whose_listener_breaks_down(play: Play) -> None:
    text = """
keep = spark.sparkContext.waybill._receiver._keep

def break_down(body):
    if b'"COMPLETE"' in body:
        raise OSError("the listener has broken down")
    return keep(body)

spark.sparkContext.waybill._receiver._keep = break_down
spark.range(10).write.parquet(OUT + "/after")
"""
    scene = ended(play, text, 0)
    assert application(scene) == (COMPLETE, None)
    scene.ran.infer_ends()
    assert application(scene) == (COMPLETE, None)
    assert scene.states("after") == [COMPLETE]


@ending(
    "a driver",
    "its Java is killed in the middle of a write",
    really="an exception, exit status 1, no `_SUCCESS`",
    record="the application ERROR; the write is never COMPLETE",
)
def test_a_driver_whose_java_is_killed(play: Play) -> None:
    kill = "os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)"
    scene = ended(play, f"once_it_writes(lambda: {kill})\nwrite_slowly()", 1)
    assert not scene.is_committed("slow")
    assert COMPLETE not in scene.states("slow")
    assert application(scene)[0] is ERROR


# As it ends for lack of memory: its executor's thread, an option of Java, or Spark's own threads.
EARLY_ENDS = {
    "spark.sparkContext._jvm.java.lang.System.exit(52)": "Spark's Java ended with status 52, out of memory",
    "spark.sparkContext._jvm.java.lang.Runtime.getRuntime().halt(3)": "Spark's Java ended with status 3",
    "os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)": "Spark's Java ended with status -9",
    "spark.sparkContext._jsc.sc().stop()": "Spark stopped before its program did",
}


@ending(
    "a driver",
    "its Java runs out of memory and ends, is killed, or stops Spark, and the program catches all errors",
    really="exit status 0; each later write is an exception",
    record="finished writes COMPLETE, the application ERROR; later writes have no record",
)
@pytest.mark.parametrize(("end", "cause"), EARLY_ENDS.items())
def test_a_driver_whose_spark_ends_first(play: Play, end: str, cause: str) -> None:
    text = f"""
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60000)
for work in (lambda: {end}, lambda: spark.range(9).write.parquet(OUT + "/after")):
    try:
        work()
    except Exception as error:
        print(error)
"""
    scene = ended(play, text, 0)
    assert not scene.is_committed("after")
    assert scene.states("after") == []
    assert application(scene) == (ERROR, cause)
    assert scene.states("before") == [COMPLETE]
