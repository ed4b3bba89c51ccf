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
