"""What differs on a terminal, and how Ctrl-C ends a command."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from terminals import each_on_terminal, on_terminal, take_ctrl_c

from waybill.transport import Journal, Settings, locks

if TYPE_CHECKING:
    from conftest import Kept


@pytest.fixture
def home(home: Path) -> Path:
    """A home with nothing in it yet."""
    Journal(home).close()
    return home


def test_a_terminal_gets_colours_aligned_columns_whole_records_and_what_is_counted(kept: Kept) -> None:
    commands = [
        ["doctor"],
        ["settings"],
        ["find", "--state", "error"],
        ["find", "--count"],
        ["find", "--count", "--missing-sink", "lake", "--data-source", "sftp-in"],
    ]
    shown = each_on_terminal([[*words, "--home", str(kept.home)] for words in commands])
    assert [code for code, _ in shown] == [0] * len(commands)
    doctor, settings, found, paths, files = (text for _, text in shown)
    assert "\x1b[32mok" in doctor
    assert "\t" not in settings
    assert "\x1b[1m" in settings
    for whole in ("second.csv", "halves", kept.second, "errorCause=no header"):
        assert whole in found
    assert "4 paths" in paths
    assert "0 files" in files


def test_no_color_is_obeyed(script: Path, home: Path) -> None:
    _, shown = on_terminal([str(script), "doctor", "--home", str(home)], NO_COLOR="1")
    assert "\x1b[32m" not in shown


def test_a_finding_goes_to_the_file_of_the_results_while_progress_is_on_the_terminal(
    script: Path, tmp_path: Path
) -> None:
    command = damaged_and(script, tmp_path, "--json")
    found = tmp_path / "found.json"
    code, shown = on_terminal(["/bin/sh", "-c", f"{command} > {found}"])
    told = [json.loads(line)["kind"] for line in found.read_text(encoding="utf-8").splitlines()]
    assert (code, told) == (1, ["finding", "summary"])
    assert "verifying" in shown
    assert '"finding"' not in shown


def test_a_finding_begins_a_line_of_its_own_beside_the_progress(script: Path, tmp_path: Path) -> None:
    code, shown = on_terminal(["/bin/sh", "-c", damaged_and(script, tmp_path)], NO_COLOR="1")
    assert code == 1
    before, _, _ = shown.partition("unreadable")
    assert before.endswith(("\n", "\x1b[2K")), before[-80:]


def damaged_and(script: Path, folder: Path, *words: str) -> str:
    """A command that verifies a root with a file that cannot be read."""
    compacted = folder / "root" / "provenance" / "compacted" / "edge" / "20260131"
    compacted.mkdir(parents=True)
    (compacted / "12.parquet").write_bytes(b"nonsense")
    return shlex.join([str(script), "verify", str(folder / "root"), *words])


def test_a_flush_shows_its_progress_on_a_terminal(script: Path, home: Path) -> None:
    Journal(home).close()
    code, shown = on_terminal([str(script), "flush", "--home", str(home)])
    assert code == 0
    assert "flushing" in shown


def test_init_asks_for_what_is_regretted_later_and_again_where_an_answer_cannot_be(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answers = "\nmaybe\nyes\nedge-7\n\ncustomer, year\n400\n"
    code, shown = on_terminal([str(script), "init", "--home", "a"], answers)
    assert code == 0, shown
    for asked in (
        "the provenance files and the archive",
        "Annotation keys",
        "removes a provenance file [3]:",
    ):
        assert asked in shown
    assert "give true or false" in shown
    found = Settings.load(env={}, cwd=tmp_path)
    assert (found.home, found.root, found.system_name) == (tmp_path / "a", tmp_path / "a", "edge-7")
    assert (found.provenance_enabled, found.provenance_age_off_days) == (True, 400)
    assert found.provenance_annotations_allowed == {"customer", "year"}
    assert found.marquez_url is None


def test_ctrl_c_is_exit_code_130_without_a_traceback(script: Path, home: Path, journal: Journal) -> None:
    held = locks.take(home)
    assert held is not None
    command = [str(script), "flush", "--home", str(home)]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=take_ctrl_c,  # noqa: PLW1509 - no threads
    ) as process:
        deadline_s = time.monotonic() + 60
        while journal.last_seq() == 0:
            assert time.monotonic() < deadline_s, "the flush has not begun"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said, noted = process.communicate(timeout=30)
    held.release()
    journal.close()
    assert (process.returncode, said, noted) == (130, "", "")


def wait_until_it_sleeps(pid: int) -> None:
    """Wait for the call that reads the answer, which a signal just before it does not end."""
    deadline_s = time.monotonic() + 60
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline_s, "it does not wait for an answer"
        time.sleep(0.05)


def test_ctrl_c_at_a_question_is_exit_code_130(script: Path, tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    with subprocess.Popen(
        [script, "init", "--home", "a"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=tmp_path,
        preexec_fn=take_ctrl_c,  # noqa: PLW1509 - no threads
    ) as process:
        os.close(terminal)
        shown = b""
        while b"]:" not in shown:
            shown += os.read(main, 4096)
        wait_until_it_sleeps(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    os.close(main)
    assert list(tmp_path.iterdir()) == []
