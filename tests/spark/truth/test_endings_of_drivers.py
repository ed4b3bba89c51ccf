"""How a driver ends, and what that does to the write that was under way."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest
from endings import Ending, ending, endings
from stage import BEHIND, CTRL_C_BREAKS_PYSPARK

from waybill.facets import EVIDENCE, PRODUCER, EventType, FinalState
from waybill.facets.spark_writes import LISTENER_ONLY

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


EARLY = """
spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60000)
for work in (lambda: {end}, lambda: spark.range(9).write.parquet(OUT + "/after")):
    try:
        work()
    except Exception as error:
        print(error)
"""


class End(NamedTuple):
    """How a driver ends: by what, with which status, and what the record of its application says."""

    text: str
    status: int
    state: FinalState
    cause: str | None


ENDS: dict[Ending, list[End]] = {
    Ending("a driver", "it exits normally, without `stop()`"): [End("", 0, COMPLETE, None)],
    Ending("a driver", "`sys.exit(3)`"): [End("sys.exit(3)", 3, ERROR, "the program exited with status 3")],
    Ending("a driver", "SIGTERM as soon as a write has returned"): [
        End("os.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)", -signal.SIGTERM, CANCELLED, None)
    ],
    # As it ends for lack of memory, by its executor's thread or by Spark's own.
    Ending(
        "a driver",
        "its Java runs out of memory and ends, is killed, or stops Spark, and the program catches all errors",
    ): [
        End(
            EARLY.format(end="spark.sparkContext._jvm.java.lang.System.exit(52)"),
            0,
            ERROR,
            "Spark's Java ended with status 52, out of memory",
        ),
        End(
            EARLY.format(end="spark.sparkContext._jsc.sc().stop()"),
            0,
            ERROR,
            "Spark stopped before its program did",
        ),
    ],
}


@pytest.mark.parametrize("end", [one for ends in ENDS.values() for one in ends])
@endings(ENDS)
def test_a_driver_ends_as_its_row_says(play: Play, end: End) -> None:
    scene = ended(play, end.text, end.status)
    assert scene.states("before") == [COMPLETE]
    assert not scene.is_committed("after")
    assert scene.states("after") == []
    assert application(scene) == (end.state, end.cause)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@ending("a driver", "SIGTERM or Ctrl-C in the middle of a write")
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


@ending("a driver", "`kill -9` or `os._exit` in the middle of a write, also of a notebook's kernel")
def test_a_driver_that_is_gone_within_a_write(play: Play) -> None:
    scene = ended(play, "once_it_writes(lambda: os._exit(5))\nwrite_slowly()", 5)
    assert not scene.is_committed("slow")
    assert scene.states("slow") == []
    assert scene.states("before") == [COMPLETE]
    scene.ran.infer_ends()
    assert scene.states("slow") == [CANCELLED]
    assert (scene.record("slow").annotations or {})[EVIDENCE].startswith("inferred: ")


@ending("a driver", "`kill -9` right after a write returned, before the listener reported that")
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


@ending("a driver", "the listener breaks down, and the driver exits normally")
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


@ending("a driver", "its Java is killed in the middle of a write")
def test_a_driver_whose_java_is_killed(play: Play) -> None:
    kill = "os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)"
    scene = ended(play, f"once_it_writes(lambda: {kill})\nwrite_slowly()", 1)
    assert not scene.is_committed("slow")
    assert COMPLETE not in scene.states("slow")
    assert application(scene)[0] is ERROR


BUSY = """
spark = waybill.spark.session("driver", **SETTINGS, **LOCAL)
spark.sparkContext.setLogLevel("OFF")
failing = spark.range(9).selectExpr("if(id = 3, raise_error('boom'), id) AS x").repartition(2)
FALLS_BEHIND.set()
for number in range(3):
    spark.range(9).write.parquet(OUT + f"/good_{number}")
    attempt(f"failed_{number}", lambda: failing.write.parquet(OUT + f"/failed_{number}"))
spark.stop()
ENDED["is_behind"] = {"value": str(IS_BEHIND), "error": None}
tell()
"""


@ending("a driver", "`stop()` while the listener is behind, as on a busy machine")
def test_a_driver_that_stops_while_the_listener_is_behind(play: Play) -> None:
    scene = play(BEHIND + BUSY)
    assert scene.ended["is_behind"]["value"] == "[True]"
    for number in range(3):
        assert scene.states(f"good_{number}") == [COMPLETE]
        assert scene.states(f"failed_{number}") == [ERROR]
        assert "boom" in scene.cause(f"failed_{number}")
    assert len(scene.ran.records) == 7
    marks = [str(one.annotations) for one in scene.ran.records]
    assert not [mark for mark in marks if "not known" in mark or LISTENER_ONLY in mark]
