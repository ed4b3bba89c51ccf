"""What decides whether a run of the tests has failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DECIDING = Path(__file__).with_name("deciding.py")
ENVIRONMENT = os.environ | {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "xdist.plugin,pytest_timeout",
}
"""Every other plug-in only takes time to load."""

ALWAYS = "def test_wrong():\n    assert 0\n"
ONCE = """
import pathlib

def test_first():
    mark = pathlib.Path(__file__).with_suffix(".ran")
    ran = mark.exists()
    mark.touch()
    assert ran
"""
UNSTABLE = """\
== unstable: failed once, and passed alone (see tests/unstable.md)
test_some.py::test_first  seed none
"""
MISSING = "import pytest\n\ndef test_lost():\n    pytest.skip('there is no chromium')\n"


def run(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    test = folder / "test_some.py"
    test.write_text(text, encoding="utf-8")
    words = [
        sys.executable,
        str(DECIDING),
        f"--rootdir={folder}",
        "-c",
        f"{folder}/none.ini",
        *arguments,
        str(test),
    ]
    (folder / "none.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_failure_that_repeats_decides(tmp_path: Path, processes: str) -> None:
    status, text = run(tmp_path, ALWAYS + ONCE, f"--numprocesses={processes}")

    assert status == 1
    assert text.endswith("== failed\ntest_some.py::test_wrong\n")
    assert UNSTABLE in text


def test_a_failure_that_does_not_repeat_is_named(tmp_path: Path) -> None:
    status, text = run(tmp_path, ONCE)

    assert status == 0
    assert text.endswith(UNSTABLE)


def test_the_last_lines_say_what_was_not_tested(tmp_path: Path) -> None:
    status, text = run(tmp_path, MISSING)

    assert status == 0
    assert text.endswith("== not tested\n    1  there is no chromium\n")


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_run_that_was_cut_short_has_failed(tmp_path: Path, processes: str) -> None:
    slow = "import time\n\ndef test_slow():\n    time.sleep(0.5)\n" + ONCE
    status, _ = run(tmp_path, slow, "--session-timeout=0.1", f"--numprocesses={processes}")

    assert status != 0


def test_tests_that_cannot_be_collected_have_failed(tmp_path: Path) -> None:
    status, _ = run(tmp_path, "import nothing_of_this_name\n")

    assert status != 0
