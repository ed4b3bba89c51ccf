"""What differs on a terminal, and how Ctrl-C ends a command."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from waybill.exporter import Compactor
from waybill.exporter.compaction import RawWriter
from waybill.exporter.names import RawName
from waybill.facets import FinalState, ProvenanceRecord
from waybill.transport import Journal, locks

if TYPE_CHECKING:
    from conftest import Kept


def on_terminal(command: list[str], **environment: str) -> tuple[int, str]:
    """Run a command on a terminal of 100 columns, and return its exit code and output."""
    main, terminal = pty.openpty()
    variables = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"} | environment
    with subprocess.Popen(
        command, stdin=terminal, stdout=terminal, stderr=terminal, env=variables
    ) as process:
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(main, 4096):
                shown += part
        except OSError:
            pass  # on Linux, this means that the other side is closed
    os.close(main)
    return process.returncode, shown.decode()


def test_a_terminal_gets_colours_and_aligned_columns(script: Path, home: Path) -> None:
    code, shown = on_terminal([str(script), "doctor", "--home", str(home)])
    assert code == 0
    assert "\x1b[32mok" in shown
    code, shown = on_terminal([str(script), "settings", "--home", str(home)])
    assert code == 0
    assert "\t" not in shown
    assert "\x1b[1m" in shown


def test_no_color_is_obeyed(script: Path, home: Path) -> None:
    _, shown = on_terminal([str(script), "doctor", "--home", str(home)], NO_COLOR="1")
    assert "\x1b[32m" not in shown


def test_on_a_terminal_a_record_keeps_its_name_passage_and_identity_whole(script: Path, kept: Kept) -> None:
    code, shown = on_terminal([str(script), "find", "--home", str(kept.home), "--state", "error"])
    assert code == 0
    for whole in ("second.csv", "halves", kept.second, "errorCause=no header"):
        assert whole in shown


def test_a_flush_shows_its_progress_on_a_terminal(script: Path, home: Path) -> None:
    Journal(home).close()
    code, shown = on_terminal([str(script), "flush", "--home", str(home)])
    assert code == 0
    assert "flushing" in shown


def test_ctrl_c_is_exit_code_130_without_a_traceback(script: Path, home: Path) -> None:
    journal = Journal(home)
    held = locks.take(home)
    assert held is not None
    command = [str(script), "flush", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline_s = time.monotonic() + 60
        while journal.last_seq() == 0:
            assert time.monotonic() < deadline_s, "the flush has not begun"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, noted = process.communicate(timeout=30)
    held.release()
    journal.close()
    assert (process.returncode, said, noted) == (130, "", "")


@pytest.mark.parametrize(
    "command", [["find"], ["find", "--json"], ["sql", "SELECT filename FROM provenance"]]
)
def test_a_terminal_is_not_steered_by_a_file_name(script: Path, tmp_path: Path, command: list[str]) -> None:
    hostile = "a\x1b]0;owned\x07\x9b31m\u202egpj.exe\x7f\r\n2026-01-01\tz"
    record = ProvenanceRecord(
        did="d",
        system_name=hostile,
        data_source=hostile,
        filename=hostile,
        transforms=(hostile,),
        data_sink=hostile,
        final_state=FinalState.COMPLETE,
        created=1,
        completed=1,
        annotations={hostile: hostile},
    )
    RawWriter(tmp_path).write(RawName("a0", 1, 1), [record])
    Compactor(tmp_path).compact()
    code, shown = on_terminal(
        [str(script), *command, "--root", str(tmp_path), "--home", str(tmp_path / "home")]
    )
    assert code == 0, shown
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.replace("\r\n", "\n"))
    assert "owned" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), ascii(text)
