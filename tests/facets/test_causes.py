"""The telling part of real error messages, as their senders write them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from waybill.facets.causes import CAUSE_BYTES_MAX, chain_of, telling

DBT = """Runtime Error in model bad (models/bad.sql)
  Binder Error: Referenced column "nope" not found in FROM clause!
  Candidate bindings: "a\""""
DBT_POSTGRES = """Database Error in model orders (models/orders.sql)
  column "nope" does not exist
  LINE 12:     select nope
                      ^
  compiled code at target/run/shop/models/orders.sql"""
DUCKDB = """Binder Error: Referenced column "nope" not found in FROM clause!
Candidate bindings: "a"

LINE 1: select nope from good
               ^"""
POSTGRES = """ERROR:  relation "orders" does not exist
LINE 1: select * from orders
                      ^"""
SQLALCHEMY = """(psycopg2.errors.UndefinedColumn) column "nope" does not exist
LINE 1: select nope
               ^

[SQL: select nope]
(Background on this error at: https://sqlalche.me/e/20/f405)"""
SPARK_ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name \
`nope` cannot be resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703; line 1 pos 7;
'Project ['nope]
+- Range (0, 10, step=1, splits=Some(2))
"""
SPARK_PARSE = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 1, pos 9)

== SQL ==
SELECT * FORM t
---------^^^
"""
STAGE = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0"
    " in stage 0.0 (TID 0) (192.0.2.2 executor driver): org.apache.spark.SparkException: [TASK_WRITE_FAILED]"
    " Task failed while writing rows to file:/out. SQLSTATE: 58030"
)
SPARK_WRITE = f"""org.apache.spark.SparkException: {STAGE}
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(Errors.scala:995)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom 3 SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2791)
\t... 17 more

Driver stacktrace:"""
SPARK_UDF = f"""{STAGE}
\tat org.apache.spark.scheduler.Task.run(Task.scala:141)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/srv/jobs/jobs/fail2.py", line 8, in bad
    if x>150: raise ValueError('boom at %d'%x)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: boom at 151

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\t... 9 more
"""
POOL = '''RuntimeError: daily load failed
Caused by: MyFault: boom
Caused by: concurrent.futures.process._RemoteTraceback:\x20
"""
Traceback (most recent call last):
  File "concurrent/futures/process.py", line 261, in _process_worker
    r = call_item.fn(*call_item.args, **call_item.kwargs)
__mp_main__.MyFault: boom
"""'''
PYTHON_WORKER = """RuntimeError: daily load failed for 2026-01-01
Caused by: pyspark.errors.exceptions.captured.PythonException:\x20
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "load.py", line 3, in read
ValueError: bad row 7
"""
PY4J = """An error occurred while calling o55.parquet.
: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)"""
JAVA = """java.lang.RuntimeException: java.util.concurrent.ExecutionException: failed
\tat com.example.Job.main(Job.java:17)
Caused by: java.util.concurrent.ExecutionException: failed
\tat com.example.Pool.get(Pool.java:3)
\t... 2 more
Caused by: java.net.ConnectException: Connection refused
\tat java.base/sun.nio.ch.Net.pollConnect(Native Method)
\t... 3 common frames omitted"""
SPARK_SUBQUERY = """Exception thrown in awaitResult:
Caused by: java.lang.RuntimeException: no such region
\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$Stage1.processNext(Unknown Source)

Driver stacktrace:"""
SPARK_CHAIN = """org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error reading a.
\tat org.apache.spark.sql.execution.datasources.FileScanRDD$$anon$1.hasNext(FileScanRDD.scala:129)
Caused by: java.util.concurrent.ExecutionException: java.io.IOException: the block is lost
\tat org.apache.spark.util.ThreadUtils$.awaitResult(ThreadUtils.scala:1)
Caused by: java.io.IOException: the block is lost
\tat org.apache.hadoop.fs.FSInputChecker.readAndDiscard(FSInputChecker.java:1)
\t... 23 more
Caused by: java.lang.NullPointerException
\t... 24 more"""
CHAINED = """Traceback (most recent call last):
  File "load.py", line 3, in <module>
    open("in.csv")
FileNotFoundError: [Errno 2] No such file or directory: 'in.csv'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "load.py", line 5, in <module>
    raise LoadError("no input") from error
__main__.LoadError: no input
"""


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        pytest.param(
            DBT,
            "Runtime Error in model bad (models/bad.sql): "
            'Binder Error: Referenced column "nope" not found in FROM clause!',
            id="dbt with DuckDB",
        ),
        pytest.param(
            DBT_POSTGRES,
            'Database Error in model orders (models/orders.sql): column "nope" does not exist',
            id="dbt with PostgreSQL",
        ),
        pytest.param(DUCKDB, 'Binder Error: Referenced column "nope" not found in FROM clause!', id="DuckDB"),
        pytest.param(POSTGRES, 'ERROR:  relation "orders" does not exist', id="PostgreSQL"),
        pytest.param(
            SQLALCHEMY, '(psycopg2.errors.UndefinedColumn) column "nope" does not exist', id="SQLAlchemy"
        ),
        pytest.param(SPARK_ANALYSIS, SPARK_ANALYSIS.partition("\n")[0], id="Spark's analysis"),
        pytest.param(
            SPARK_PARSE,
            "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 1, pos 9)",
            id="Spark's parser",
        ),
        pytest.param(
            SPARK_WRITE,
            f"org.apache.spark.SparkException: {STAGE}"
            "; caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] boom 3"
            " SQLSTATE: P0001",
            id="Spark's write",
        ),
        pytest.param(SPARK_UDF, "ValueError: boom at 151", id="Python within Spark"),
        pytest.param(
            f"RuntimeError: daily load failed\nCaused by: pyspark.errors.SparkException: {SPARK_UDF}",
            "RuntimeError: daily load failed; caused by: ValueError: boom at 151",
            id="Python within Spark within Python",
        ),
        pytest.param(
            PYTHON_WORKER,
            "RuntimeError: daily load failed for 2026-01-01; caused by: ValueError: bad row 7",
            id="a worker of Spark's",
        ),
        pytest.param(POOL, "RuntimeError: daily load failed; caused by: MyFault: boom", id="a process pool"),
        pytest.param(PY4J, "java.io.IOException: No space left on device", id="py4j"),
        pytest.param(
            JAVA,
            "java.lang.RuntimeException: java.util.concurrent.ExecutionException: failed"
            "; caused by: java.net.ConnectException: Connection refused",
            id="Java's chain",
        ),
        pytest.param(
            CHAINED,
            "LoadError: no input"
            "; caused by: FileNotFoundError: [Errno 2] No such file or directory: 'in.csv'",
            id="Python's chain",
        ),
        pytest.param(SPARK_SUBQUERY, "java.lang.RuntimeException: no such region", id="Spark's subquery"),
        pytest.param(
            SPARK_CHAIN,
            "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error reading a."
            "; caused by: java.util.concurrent.ExecutionException: java.io.IOException: the block is lost"
            "; caused by: java.lang.NullPointerException",
            id="Spark's chain",
        ),
        pytest.param(
            "Traceback (most recent call last):", "Traceback (most recent call last):", id="no more"
        ),
        pytest.param("the disk is full", "the disk is full", id="one line"),
        pytest.param("the disk is full\nof 1 GiB", "the disk is full", id="two lines"),
        pytest.param(" \n ", "", id="blank"),
    ],
)
def test_the_telling_part_of_a_real_message(message: str, cause: str) -> None:
    assert telling(message) == cause


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            "cannot reach jdbc:postgresql://etl:s3cret@db/x",
            "cannot reach jdbc:postgresql://etl:[redacted]@db/x",
        ),
        ("FATAL: password=s3cret, user=etl", "FATAL: password=[redacted], user=etl"),
        ('{"api_key": "s3cret", "x": 1}', '{"api_key": [redacted], "x": 1}'),
        ("AWS_SECRET_ACCESS_KEY=s3cret is wrong", "AWS_SECRET_ACCESS_KEY=[redacted] is wrong"),
        ("401 for Authorization: Bearer abc.def.ghi-jkl", "401 for Authorization: Bearer [redacted]"),
        ("s3://lake?X-Amz-Security-Token=s3cret&x=1", "s3://lake?X-Amz-Security-Token=[redacted]&x=1"),
        ("https://a.blob/x?se=1&sig=s3cret%3D&sv=2", "https://a.blob/x?se=1&sig=[redacted]&sv=2"),
        ("ORA-01017: etl:s3cret@orcl is wrong", "ORA-01017: etl:[redacted]@orcl is wrong"),
        ("git@example.org:a/b at 10:30, design=1", "git@example.org:a/b at 10:30, design=1"),
    ],
)
def test_what_looks_like_a_secret_is_masked(message: str, cause: str) -> None:
    assert telling(message) == cause


def test_the_cause_behind_a_long_first_line_is_kept() -> None:
    cause = telling("x" * 5_000 + "\n\tat a.B.c(D.java:1)\nCaused by: java.io.IOException: No space left")
    assert cause == "x" * 974 + "…; caused by: java.io.IOException: No space left"
    assert len(cause.encode()) == CAUSE_BYTES_MAX


def test_of_a_chain_that_is_too_long_the_first_and_the_last_cause_are_kept() -> None:
    middle = "".join(f"\nCaused by: a.B: {digit * 300}" for digit in "123456")
    cause = telling(f"broken{middle}\nCaused by: java.io.IOException: No space left")
    assert cause == "broken; caused by: …; caused by: java.io.IOException: No space left"


def test_a_chain_of_exceptions_ends_although_it_is_a_circle() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__context__ = second, first
    assert chain_of(first)[:3] == [first, second, first]
    assert len(chain_of(first)) < 100
    grouped = ExceptionGroup("2 tasks failed", [OSError("disk full"), ValueError("no")])
    assert chain_of(grouped) == [grouped, grouped.exceptions[0]]


def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    for part in ("at (", "a ", "://a:", "password", "Error in (", "\nCaused by:", "...1 more\n", "x="):
        assert len(telling(part * 500_000).encode()) <= CAUSE_BYTES_MAX


LONG = st.sampled_from(["é", "𝄞", "a𝄞"]).map(lambda one: one * 900)


@given(st.text() | LONG)
def test_it_is_bounded_and_a_whole_text_whatever_the_message(message: str) -> None:
    cause = telling(message)
    assert len(cause.encode()) <= CAUSE_BYTES_MAX
    assert cause == cause.strip()
    assert bool(cause) == bool(message.strip())
