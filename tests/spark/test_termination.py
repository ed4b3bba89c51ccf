"""A driver that is stopped by a signal leaves its last write, and says that what it was at was cancelled."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from events import event

from waybill.facets import PRODUCER, EventType, FinalState, RunEvent, decode_event
from waybill.spark.tracking import termination
from waybill.spark.tracking.observed_runs import ObservedRuns

if TYPE_CHECKING:
    from conftest import Ran, Run

SESSION = """
import os, signal, threading, time
from waybill.facets import decode_event
from waybill.transport import Journal
from pathlib import Path
from waybill.spark.tracking import application, termination

# A machine that is busy with other tests may be slower than what a driver is given.
application.DRAIN_TIMEOUT_S, termination.TERMINATION_TIMEOUT_S = 60.0, 80.0

def kill(number=signal.SIGTERM):
    os.kill(os.getpid(), number)

def told(word, name):
    "How many events of this type name this output."
    journal = Journal(Path(HOME))
    events = [decode_event(entry.body) for entry in journal.read(0, limit=100_000)]
    journal.close()
    return sum(
        event.eventType.value == word and output.name.endswith("/" + name)
        for event in events for output in event.outputs or ()
    )

def once_it_runs(name, work):
    def wait():
        while not told("START", name):
            time.sleep(0.05)
        work()
    threading.Thread(target=wait, daemon=True).start()

def begin():
    spark = waybill.spark.session("job", **SETTINGS, **LOCAL)
    spark.sparkContext.setLogLevel("OFF")
    spark.range(5).write.parquet(OUT + "/first")
    return spark

def write_slowly(spark):
    waits = "java_method('java.util.concurrent.locks.LockSupport', 'parkNanos', 20000000000L)"
    spark.range(0, 8, 1, 8).selectExpr(waits).write.text(OUT + "/slow")
"""


def state(ran: Ran, name: str) -> list[FinalState]:
    return [record.final_state for record in ran.written(name)]


def ends(ran: Ran) -> list[EventType]:
    """The types of the terminal events of ours, but for those that confirm a success."""
    ours = [event.eventType for event in ran.events if event.producer == PRODUCER]
    return [kind for kind in ours if kind is not EventType.COMPLETE]


@pytest.mark.spark_truth
def test_a_failure_that_sigterm_follows_at_once_is_an_error_and_a_fork_that_is_terminated_ends_nothing(
    run: Run,
) -> None:
    ran = run(
        SESSION
        + """
spark = begin()
child = os.fork()
if not child:
    time.sleep(60)
os.kill(child, signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
try:
    spark.range(5).selectExpr("if(id = 3, raise_error('boom'), 's') AS v").write.parquet(OUT + "/last")
except Exception:
    kill()
time.sleep(60)
"""
    )
    assert ran.status == -signal.SIGTERM, ran.stderr
    assert ran.stdout.split()[-1] == str(-signal.SIGTERM)
    assert state(ran, "last") == [FinalState.ERROR]
    assert sorted(ends(ran)) == [EventType.ABORT, EventType.FAIL]


@pytest.mark.spark_truth
def test_sigterm_for_the_whole_process_group_loses_nothing_either(run: Run) -> None:
    ran = run(
        SESSION
        + """
os.setpgrp()
begin().range(3).write.parquet(OUT + "/last")
os.killpg(0, signal.SIGTERM)
time.sleep(60)
"""
    )
    assert ran.status == -signal.SIGTERM, ran.stderr
    assert state(ran, "first") == state(ran, "last") == [FinalState.COMPLETE]


@pytest.mark.spark_truth
def test_a_jvm_that_hangs_delays_sigterm_for_seconds_only(run: Run) -> None:
    ran = run(
        SESSION
        + """
import subprocess
from pyspark import SparkContext
application.DRAIN_TIMEOUT_S, termination.TERMINATION_TIMEOUT_S = 4.0, 5.0
spark = begin()
jvm = SparkContext._gateway.proc.pid
os.kill(jvm, signal.SIGSTOP)
# It has this program's output open, and ends with it.
nowhere = subprocess.DEVNULL
subprocess.Popen(["sh", "-c", f"sleep 25; kill -9 {jvm}"], stdout=nowhere, stderr=nowhere)
threading.Thread(target=lambda: (time.sleep(20), print("late", flush=True)), daemon=True).start()
kill()
time.sleep(60)
"""
    )
    assert ran.status == -signal.SIGTERM, ran.stderr
    assert "late" not in ran.stdout
    # Whether the first write was told in time is open; that it is cancelled would be false.
    assert FinalState.CANCELLED not in state(ran, "first")
    assert ran.application("job").final_state is FinalState.CANCELLED


@pytest.mark.spark_truth
def test_before_each_call_of_a_handler_of_the_users_all_is_recorded_and_nothing_ends(run: Run) -> None:
    ran = run(
        SESSION
        + """
seen = []
signal.signal(signal.SIGTERM, lambda *_: seen.append(told("COMPLETE", f"write{len(seen)}")))
spark = begin()
for number in range(20):
    spark.range(number + 1).write.parquet(OUT + f"/write{number}")
    kill()
spark.stop()
print(seen.count(1))
"""
    )
    assert ran.status == 0, ran.stderr
    assert ran.stdout.split()[-1] == "20"
    assert ran.application("job").final_state is FinalState.COMPLETE
    assert ends(ran) == []


@pytest.mark.spark_truth
def test_a_handler_of_the_users_that_exits_decides_the_status(run: Run) -> None:
    ran = run(
        SESSION
        + """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
spark = begin()
once_it_runs("slow", kill)
write_slowly(spark)
"""
    )
    assert ran.status == 7, ran.stderr
    assert state(ran, "first") == [FinalState.COMPLETE]
    assert FinalState.COMPLETE not in state(ran, "slow")
    assert len(state(ran, "slow")) == 1
    application = ran.application("job")
    assert (application.annotations or {})["errorCause"] == "the program exited with status 7"


WITHOUT_SPARK = """
import os, signal, sys, threading, time
from waybill.spark.tracking import termination
def on_to(ours):
    return lambda *given: (print("theirs", flush=True), ours(*given))
{before}
watch = lambda: termination.watch(lambda: print("drained", flush=True), lambda: print("ended", flush=True))
{begin}
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.2)
"""


@pytest.mark.parametrize(
    ("before", "begin", "said", "status"),
    [
        ("", "watch(); watch()", ["ended"], -signal.SIGTERM),
        ("", "thread = threading.Thread(target=watch); thread.start(); thread.join()", [], -signal.SIGTERM),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "watch()", [], 0),
        ("signal.signal(signal.SIGTERM, lambda *_: print('theirs'))", "watch()", ["drained", "theirs"], 0),
        ("", "watch(); signal.signal(signal.SIGTERM, lambda *_: print('theirs'))", ["theirs"], 0),
        (
            "",
            "watch(); signal.signal(signal.SIGTERM, on_to(signal.getsignal(signal.SIGTERM))); watch()",
            ["drained", "theirs", "ended"],
            -signal.SIGTERM,
        ),
    ],
    ids=["default", "thread", "ignored", "handled", "replaced", "replaced by one that goes on to ours"],
)
def test_the_handler_does_what_was_done_before_it(
    before: str, begin: str, said: list[str], status: int
) -> None:
    program = [sys.executable, "-c", WITHOUT_SPARK.format(before=before, begin=begin)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.stdout.split(), ended.returncode) == (said, status), ended.stderr


def test_work_that_takes_too_long_is_not_waited_for() -> None:
    program = WITHOUT_SPARK.replace('lambda: print("ended", flush=True)', "lambda: time.sleep(100)")
    program = program.format(before="termination.TERMINATION_TIMEOUT_S = 0.1", begin="watch()")
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ended.returncode == -signal.SIGTERM
    assert termination.TERMINATION_TIMEOUT_S <= 5


def test_a_program_that_ctrl_c_ended_says_so_by_its_status_whatever_its_exit_compiles() -> None:
    program = """
import atexit
from waybill.spark.tracking.termination import stay_interrupted
atexit.register(lambda: (eval("1"), stay_interrupted()))
raise KeyboardInterrupt
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGINT


@pytest.mark.parametrize(
    ("facets", "outputs", "are_open"),
    [
        ({}, [], 1),
        ({"spark_jobDetails": {"jobId": 1}}, [], 0),
        ({"spark_jobDetails": {"jobId": 1}}, ["file:/out"], 1),
    ],
    ids=["execution", "RDD's job", "RDD's write"],
)
def test_a_job_whose_end_the_listener_never_tells_is_not_waited_for(
    facets: dict[str, object], outputs: list[str], are_open: int
) -> None:
    observed = ObservedRuns()
    decoded = decode_event(
        event("01900000-0000-7000-8000-000000000000", "START", facets=facets, outputs=outputs)
    )
    assert isinstance(decoded, RunEvent)
    observed.observe(decoded)
    assert len(observed.open_runs()) == are_open
