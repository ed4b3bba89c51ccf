"""Identifying processes, and whether they are gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from waybill.transport.programs import Program, this_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of processes")


def here() -> Program:
    program = this_program()
    assert program is not None
    return program


def program_of(pid: int) -> Program:
    """The program of a live process."""
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return here()._replace(pid=pid, started=started)


def test_a_process_that_lives_is_not_gone_and_one_that_was_killed_is() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        program = program_of(process.pid)
        assert not program.is_gone
        process.kill()
    assert program.is_gone
    assert not here().is_gone


def test_a_process_that_nobody_has_waited_for_yet_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    program = program_of(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert program.is_gone
    process.communicate()


def test_an_id_that_is_used_again_is_another_program() -> None:
    assert here()._replace(started=here().started - 1).is_gone


def test_what_was_before_this_boot_is_gone_also_where_its_namespace_was_another() -> None:
    assert here()._replace(boot="another").is_gone
    assert here()._replace(boot="another", namespace="another").is_gone


@pytest.mark.parametrize("changes", [{"host": "another"}, {"namespace": "another"}])
def test_nothing_is_said_of_another_hosts_or_containers_programs(changes: dict[str, str]) -> None:
    program = here()._replace(pid=2**22, started=1, **changes)
    assert not program.is_gone
    assert not program.is_of_here


def test_a_program_is_written_and_read_back() -> None:
    assert Program.parse(str(here())) == here()


def test_a_fork_is_a_program_of_its_own() -> None:
    parent, (read, write) = here(), os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write, str(this_program()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    child = Program.parse(os.read(read, 1_000).decode())
    os.close(read)
    os.close(write)
    assert (child.pid, child.is_gone) == (pid, True)
    assert child._replace(pid=parent.pid, started=parent.started) == parent
    assert here() == parent
