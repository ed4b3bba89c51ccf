"""How what a notebook's cells write ends, in a kernel of Jupyter's that somebody stops."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import pyspark
import pytest
from endings import ending
from waiting import wait_until

from waybill.facets import EVIDENCE, FinalState

if TYPE_CHECKING:
    from conftest import Ran

pytestmark = [
    pytest.mark.spark_truth,
    pytest.mark.skipif(
        not (find_spec("ipykernel") and find_spec("jupyter_client")),
        reason="Jupyter's kernel is not here; make test-spark-truth has it",
    ),
]

COMPLETE, ERROR, CANCELLED = FinalState.COMPLETE, FinalState.ERROR, FinalState.CANCELLED
WAITS_S: Final = 120

BEGIN = """
import os, sys, time
import waybill.spark
from pyspark.sql import functions as F

HOME, OUT = "{home}", "{out}"
conf = {{"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}}
spark = waybill.spark.session(
    "book", home=HOME, runner="none", system_name="tests", master="local[2]", conf=conf)
spark.sparkContext.setLogLevel("OFF")
slow = F.udf(lambda value: time.sleep(0.5) or value, "long")
"""

WRITES = "spark.range(3).write.parquet(OUT + '/{name}')"
FAILS = """
rows = spark.range(9).repartition(2)
rows.selectExpr("if(id = 3, raise_error('boom'), id) AS x").write.parquet(OUT + "/failed")
"""
WRITES_SLOWLY = "spark.range(100).repartition(2).withColumn('x', slow('id')).write.parquet(OUT + '/slow')"


class Notebook:
    """A kernel in which a tracked session is open, and what it left."""

    def __init__(self, kernel: Any, client: Any, ran: Ran) -> None:  # noqa: ANN401 - Jupyter may not be here
        self.kernel = kernel
        self.ran = ran
        self._client = client
        self._cell = ""

    def run(self, cell: str) -> str | None:
        """Run a cell: the name of the exception that it ended with, if any."""
        self._cell = self._client.execute(cell)
        return self.ended()

    def begin(self, cell: str) -> None:
        """Run a cell until it writes to the folder `slow`."""
        self._cell = self._client.execute(cell)
        wait_until((self.ran.out / "slow" / "_temporary").exists, WAITS_S)
        time.sleep(1)

    def ended(self) -> str | None:
        """Wait for the end of the cell that runs."""
        while (reply := self._client.get_shell_msg(timeout=WAITS_S))["parent_header"]["msg_id"] != self._cell:
            pass
        content = reply["content"]
        return content["ename"] if content["status"] == "error" else None

    def said(self, name: str) -> list[tuple[FinalState, str | None]]:
        """Final state, and the mark of its evidence, in each record of a folder."""
        self.ran.read()
        found = self.ran.written(name)
        return [(record.final_state, (record.annotations or {}).get(EVIDENCE)) for record in found]

    def application(self) -> FinalState:
        """The final state of the application."""
        return self.ran.application("book").final_state


@pytest.fixture
def notebook(not_begun: Ran) -> Iterator[Notebook]:
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "TMPDIR": str(not_begun.folder)}
    kernel = importlib.import_module("jupyter_client.manager").KernelManager(kernel_name="python3")
    with ExitStack() as stack:
        kernel.start_kernel(cwd=str(not_begun.folder), env=env)
        stack.callback(kernel.shutdown_kernel, now=True)
        client = kernel.client()
        client.start_channels()
        stack.callback(client.stop_channels)
        client.wait_for_ready(WAITS_S)
        book = Notebook(kernel, client, not_begun)
        assert book.run(BEGIN.format(home=not_begun.home, out=not_begun.out)) is None
        yield book


@ending("a notebook", "an exception in a cell, as of a write that fails; the next cell writes")
def test_a_cell_whose_write_fails(notebook: Notebook) -> None:
    assert notebook.run(WRITES.format(name="before")) is None
    assert notebook.run(FAILS) is not None
    assert notebook.run(WRITES.format(name="after")) is None
    assert notebook.run("spark.stop()") is None
    assert notebook.said("before") == notebook.said("after") == [(COMPLETE, None)]
    assert notebook.said("failed") == [(ERROR, None)]
    assert "boom" in (notebook.ran.written("failed")[0].annotations or {})["errorCause"]
    assert notebook.application() is COMPLETE


@ending("a notebook", "a cell is interrupted in the middle of a write, the next cell writes")
def test_a_cell_that_is_interrupted_within_a_write(notebook: Notebook) -> None:
    notebook.begin(WRITES_SLOWLY)
    notebook.kernel.interrupt_kernel()
    assert notebook.ended() is not None
    assert notebook.run(WRITES.format(name="after")) is None
    wait_until(lambda: notebook.said("slow"), WAITS_S)
    assert notebook.run("spark.stop()") is None
    goes_on = pyspark.__version__.startswith("3.")
    assert (notebook.ran.out / "slow" / "_SUCCESS").exists() or not goes_on
    assert notebook.said("slow") == [(COMPLETE if goes_on else CANCELLED, None)]
    assert notebook.said("after") == [(COMPLETE, None)]
    assert notebook.application() is COMPLETE


@ending("a notebook", "the kernel is restarted, whatever the last cell did")
def test_a_kernel_that_is_restarted_while_a_session_is_open(notebook: Notebook) -> None:
    assert notebook.run(WRITES.format(name="before")) is None
    assert notebook.run("1 / 0") == "ZeroDivisionError"
    notebook.kernel.restart_kernel()
    assert notebook.said("before") in ([(COMPLETE, None)], [(COMPLETE, "listener only")])
    assert notebook.application() is COMPLETE


@ending("a notebook", "the kernel is shut down in the middle of a write")
def test_a_kernel_that_is_shut_down_within_a_write(notebook: Notebook) -> None:
    notebook.begin(WRITES_SLOWLY)
    notebook.kernel.shutdown_kernel()
    assert not (notebook.ran.out / "slow" / "_SUCCESS").exists()
    assert notebook.said("slow") == [(CANCELLED, None)]
