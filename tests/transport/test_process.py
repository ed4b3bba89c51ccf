from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("given", "used"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")]
)
@pytest.mark.parametrize("own", ["waybill.transport.process.prepare()", "run_help()"])
def test_waybills_own_processes_allocate_from_the_system_unless_told_otherwise(
    own: str, given: dict[str, str], used: str
) -> None:
    code = f"""
import contextlib, sys, waybill.cli.app, waybill.transport.process
def run_help():
    sys.argv = ["waybill", "--help"]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
        waybill.cli.app.main()
{own}
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""
    environment = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment | given, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [used]


def test_waybills_own_processes_may_open_as_many_files_as_the_system_grants() -> None:
    code = """
import resource, waybill.transport.process
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 200 if hard == resource.RLIM_INFINITY else min(hard, 200)))
waybill.transport.process.prepare()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    soft, hard = done.stdout.split()
    assert soft == hard


def test_waybills_own_code_loads_no_pandas_in_its_own_processes_and_that_of_others_may() -> None:
    pytest.importorskip("pandas")
    code = """
import sys, waybill.transport.process
waybill.transport.process.prepare()
import pyarrow
from waybill.facets.arrow import to_table
to_table([])
print("pandas" in sys.modules)
print(type(pyarrow.table({"a": [1]}).to_pandas()).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "DataFrame"]
