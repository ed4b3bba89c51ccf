"""Analyzers in a process of their own: hostile texts and analyzers end at most that process."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from keeping import install_analyzer
from sqlglot.errors import SqlglotError

from waybill.lineage.analyzers import Result, Worker
from waybill.lineage.analyzers.reading_sql import read_sql
from waybill.lineage.analyzers.sql_scopes import DIRECT

if TYPE_CHECKING:
    from pathlib import Path

GOOD = "INSERT INTO a SELECT x FROM b"
EXPONENTIAL = " ".join(
    [
        "WITH c0 AS (SELECT 1 AS a, 2 AS b)",
        *(f", c{at} AS (SELECT x.*, y.* FROM c{at - 1} x, c{at - 1} y)" for at in range(1, 40)),  # noqa: S608
        "INSERT INTO z SELECT * FROM c39",
    ]
)
HOSTILE_ANALYZER = """
import os, re, signal, sys, time
from pathlib import Path

class Hostile:
    name, covers, confidence = "hostile", "jobs with bad names", 0.1

    def analyze(self, event, catalog):
        match event["job"]["name"]:
            case "backtracking":
                re.match(r"(a+)+$", "a" * 64 + "b")
            case "memory":
                return {"outputs": [bytearray(2**31)]}
            case "print":
                print("5\\nhello")
            case "exit":
                os._exit(3)
            case "killed once" if not Path(os.environ["HOSTILE_TEST"]).exists():
                Path(os.environ["HOSTILE_TEST"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "waits" | "waits for ever":
                time.sleep(1.5 if event["job"]["name"] == "waits" else 60)
            case "stop":
                sys.exit("enough")
            case "no event":
                return {"outputs": object()}
            case "raise":
                raise OSError("no such dashboard")
"""


def event(sql: str = GOOD, name: str = "daily") -> bytes:
    job = {"namespace": "db://store", "name": name, "facets": {"sql": {"query": sql}}}
    return json.dumps({"job": job}, indent=1).encode()


@pytest.fixture
def _hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_analyzer(HOSTILE_ANALYZER, tmp_path, monkeypatch)
    monkeypatch.setenv("HOSTILE_TEST", str(tmp_path / "was killed"))


def test_events_are_analyzed_in_order_and_nobody_waits_for_it() -> None:
    catalog = {("db://store", "b"): {"X": "int"}}
    with Worker() as worker:
        began_s = time.thread_time()
        for number in range(100):
            worker.submit(str(number), event(), catalog)
        assert worker.poll() == [] or worker.pending < 100
        assert time.thread_time() - began_s < 1
        results = [worker.take() for _ in range(worker.pending)]
        assert worker.poll() == []
    assert [one.key for one in results][-1] == "99"
    ((found,),) = {one.findings for one in results}
    (output,) = json.loads(found.event)["outputs"]
    used = output["facets"]["columnLineage"]["fields"]["x"]["inputFields"]
    assert [(one["name"], one["field"]) for one in used] == [("b", "X")]


@pytest.mark.usefixtures("_hostile")
def test_what_an_analyzer_does_ends_at_most_the_process_and_the_next_event_is_read() -> None:
    names = ["backtracking", "memory", "print", "exit", "stop", "no event", "raise"]
    with Worker(time_s=1) as worker:
        for name in names:
            worker.submit(name, event(name=name), {})
            worker.submit(f"after {name}", event(), {})
        results = {one.key: one for one in (worker.take() for _ in range(worker.pending))}
    told = {name: results[name].problem for name in names}
    assert told == {
        "backtracking": "reading it takes more than 1 s of the processor",
        "memory": None,
        "print": None,
        "exit": "reading it ends the analyzers' process (exit code 3)",
        "stop": "reading it ends the analyzers' process (exit code 1)",
        "no event": None,
        "raise": None,
    }
    problems = {name: [one.problem for one in results[name].findings] for name in names}
    assert problems["print"] == [None]
    assert [str(problems[name][1])[:11] for name in ("memory", "no event", "raise")] == [
        "MemoryError",
        "TypeError: ",
        "OSError: no",
    ]
    assert {name: [one.analyzer for one in results[f"after {name}"].findings] for name in names} == {
        name: ["sql"] for name in names
    }


@pytest.mark.usefixtures("_hostile")
def test_what_may_be_no_texts_fault_is_tried_again_and_time_is_that_of_the_processor() -> None:
    results: dict[str, Result] = {}
    for names, wait_s, pauses_s in (
        (["killed once", "killed", "waits", "backtracking"], 60, (0.1, 0.1)),
        (["waits for ever"], 0.5, ()),
    ):
        with Worker(time_s=1, wait_s=wait_s, pauses_s=pauses_s) as worker:
            for name in names:
                worker.submit(name, event(name=name), {})
            results |= {one.key: one for one in (worker.take() for _ in names)}
    assert {name: (one.problem, one.is_accident) for name, one in results.items()} == {
        "killed once": (None, False),
        "killed": ("reading it ends the analyzers' process (signal SIGKILL)", True),
        "waits": (None, False),
        "waits for ever": ("reading it takes longer than 0.5 s", True),
        "backtracking": ("reading it takes more than 1 s of the processor", False),
    }
    for name in ("killed once", "waits"):
        assert [one.analyzer for one in results[name].findings] == ["sql"]


def test_a_hostile_text_is_told_and_stalls_nothing() -> None:
    texts = {
        "exponential": EXPONENTIAL,
        "deep": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
        "quotes": "'" * 300_001,
        "large": "SELECT " + "1 + " * 300_000 + "1",
    }
    with Worker(time_s=2) as worker:
        for key, text in texts.items():
            worker.submit(key, event(text), {})
        worker.submit("no event", b'{"job":', {})
        worker.submit("good", event(), {})
        results = {one.key: one for one in (worker.take() for _ in range(worker.pending))}
    assert results["exponential"].problem == "reading it takes more than 2 s of the processor"
    assert results["large"].problem == "the event has more than 1,048,576 bytes"
    assert str(results["no event"].problem).startswith("it is no event")
    for key in ("deep", "quotes"):
        assert results[key].problem or results[key].findings[0].problem
    assert [one.problem for one in results["good"].findings] == [None]


def test_a_worker_that_is_closed_has_no_process_and_waits_for_none() -> None:
    worker = Worker(time_s=60)
    worker.submit("slow", event(EXPONENTIAL), {})
    began_s = time.monotonic()
    worker.close()
    assert time.monotonic() - began_s < 30
    assert worker._process is None  # noqa: SLF001 - nobody else can tell
    unused = Worker()
    unused.close()


OF_SQL = """
    SELECT FROM WHERE JOIN ON USING ( ) , ; * . a b c t u AS WITH UNION ALL INSERT INTO UPDATE SET = DELETE
    MERGE WHEN MATCHED THEN CREATE TABLE VIEW TEMPORARY GROUP BY ORDER 1 'x' CASE END OVER PARTITION LATERAL
    UNNEST EXPLODE PIVOT FOR IN VALUES RECURSIVE EXISTS QUALIFY - count sum
"""
WORDS = st.sampled_from(OF_SQL.split())
SHAPES = st.sampled_from(
    [
        "INSERT INTO t SELECT {} FROM u WHERE {}",
        "CREATE TABLE t AS WITH c AS (SELECT {} FROM u) SELECT {} FROM c",
        "UPDATE t SET a = {} FROM u WHERE {}",
        "MERGE INTO t USING u ON {} WHEN MATCHED THEN UPDATE SET a = {}",
        "DELETE FROM t WHERE {} AND {}",
        "SELECT * FROM ({}) JOIN ({}) USING (a)",
        "{} {}",
    ]
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    shape=SHAPES,
    parts=st.tuples(*[st.lists(WORDS, max_size=12).map(" ".join)] * 2),
    dialect=st.sampled_from(["spark", "postgres", "snowflake", "bigquery", "tsql", None]),
)
def test_words_in_any_order_are_read_or_refused(
    shape: str, parts: tuple[str, str], dialect: str | None
) -> None:
    try:
        reading = read_sql(shape.format(*parts), dialect, lambda _: {"a": "int"})
    except (SqlglotError, ValueError):
        return
    for relation in reading.outputs.values():
        names = [name for name, _ in relation.columns]
        assert len(names) == len(set(names))
        for origin in (one for _, origins in relation.columns for one in origins if one.subtype in DIRECT):
            assert origin.table in reading.inputs
