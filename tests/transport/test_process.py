"""What Waybill's own processes get ready."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def printed_by(code: str, **environment: str) -> list[str]:
    """What a process of its own prints."""
    given = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=given | environment, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_a_command_allocates_from_the_system() -> None:
    code = """
import contextlib, sys, waybill.cli.app
sys.argv = ["waybill", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
    waybill.cli.app.main()
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""
    assert printed_by(code) == ["system"]


def test_an_own_process_opens_many_files_allocates_as_told_and_loads_no_pandas_unless_others_do() -> None:
    pytest.importorskip("pandas")
    code = """
import resource, sys, waybill.transport.process
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200 if hard == resource.RLIM_INFINITY else min(hard, 200)))
waybill.transport.process.prepare()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
import pyarrow
from waybill.facets.arrow import to_table
to_table([])
print(soft == hard, pyarrow.default_memory_pool().backend_name, "pandas" in sys.modules)
print(type(pyarrow.table({"a": [1]}).to_pandas()).__name__)
"""
    told = printed_by(code, ARROW_DEFAULT_MEMORY_POOL="mimalloc")
    assert told == ["True", "mimalloc", "False", "DataFrame"]
