"""The command among others: in a pipe, interrupted, and with an encoding that lacks letters."""

from __future__ import annotations

import contextlib
import gzip
import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from calling import call
from terminals import take_ctrl_c

from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path

RUN = [sys.executable, "-m", "waybill"]
NAME = "bücher-日本-🚢.csv"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("filled") / "home"
    fields = {"systemName": "hafen-ü", "finalState": "COMPLETE", "created": 1, "completed": 2}
    records = [{"did": f"{at}", "filename": f"{at}-{NAME}", **fields} for at in range(2_000)]
    with contextlib.closing(Journal(home)) as journal:
        journal.append(Kind.PROVENANCE, json.dumps(records).encode())
    assert call("flush", "--home", home, "--provenance-enabled").returncode == 0
    return home


@pytest.mark.parametrize(("form", "lines"), [([], 0), (["--json"], 1)])
def test_a_reader_that_has_enough_ends_a_command_as_a_pipe_does(
    filled: Path, form: list[str], lines: int
) -> None:
    command = [*RUN, "find", "--home", str(filled), "--all", *form]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait() == 128 + signal.SIGPIPE
    assert "Error" not in said
    assert "Traceback" not in said


def test_help_and_short_answers_end_so_too(filled: Path) -> None:
    for words in (["--help"], ["status", "--home", str(filled)]):
        with subprocess.Popen([*RUN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b"", words
            assert process.wait() == 128 + signal.SIGPIPE, words


LOADING = """
import sys
from waybill.cli import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "waybill.cli.app":
            print(flush=True)

sys.meta_path.insert(0, Finder())
main()
"""
"""Says when it begins to load the commands."""


@pytest.mark.parametrize("after_s", [0, 0.2])
def test_an_interrupt_while_a_command_loads_says_nothing(filled: Path, after_s: float) -> None:
    command = [sys.executable, "-c", LOADING, "find", "--home", str(filled), "--all", "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=take_ctrl_c,  # noqa: PLW1509 - no threads
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, b"Traceback" in said) == (130, False), said


@pytest.mark.parametrize(("form", "encoding"), [([], "ascii"), (["--json"], "latin-1")])
def test_letters_that_the_output_lacks_are_escapes(
    filled: Path, form: list[str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    command = [*RUN, "find", "--home", str(filled), "--filename", f"7-{NAME}", *form]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    text = done.stdout.decode(encoding)
    assert r"\u65e5\u672c-\ud83d\udea2.csv" in text
    if form == ["--json"]:
        assert json.loads(text)["filename"] == f"7-{NAME}"


def test_so_are_those_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    failed = subprocess.run([*RUN, "find", "--home", "/ü/nowhere"], capture_output=True, check=False)
    assert (failed.returncode, b"Traceback" in failed.stderr) == (2, False)


def test_stdin_is_read_to_its_end() -> None:
    packed = gzip.compress(b"orders")
    done = subprocess.run([*RUN, "fingerprint", "-"], input=packed, capture_output=True, check=True)
    assert done.stdout == b"xxh3-128:b47e5f278b024151d3047ab9cc789b9d  -\n"
