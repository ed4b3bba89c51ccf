"""What a night's report says of parts that pass, fail, and do not end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

NIGHTLY = Path(__file__).with_name("nightly.py")

MAKEFILE = """
export PYTEST_DISABLE_PLUGIN_AUTOLOAD = 1
PYTEST := {python} -m pytest -ra -c none.ini -p pytest_timeout $(ARGS)
walks:
\t$(PYTEST) test_wrong.py
test-spark-truth-35:
\t$(PYTEST) test_skipped.py
test-ecosystem:
\t$(PYTEST) -p xdist --numprocesses=2 test_slow.py
exhaustive:
\t@test $(EXHAUSTIVE_BOUND_S) = 20
sql-oracle:
\t$(PYTEST) test_late.py
storm:
\t@echo there is nothing to storm >&2; exit 3
"""
TESTS = {
    "wrong": "def test_wrong():\n    assert 0\n",
    "late": "import time\n\ndef test_late():\n    time.sleep(5)\n",
    "skipped": "import pytest\n\ndef test_lost():\n    pytest.skip('no chromium')\n\ndef test_right(): ...\n",
    "slow": "import time, pytest\n\n@pytest.mark.parametrize('one', range(9))\n"
    "def test_slow(one):\n    time.sleep(2)\n",
}


def test_every_part_is_run_and_the_report_says_what_became_of_it(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE.format(python=sys.executable), encoding="utf-8")
    (tmp_path / "none.ini").write_text("[pytest]\n", encoding="utf-8")
    for name, text in TESTS.items():
        (tmp_path / f"test_{name}.py").write_text(text, encoding="utf-8")
    parts = ["walks", "test-spark-truth-35", "test-ecosystem", "exhaustive", "sql-oracle", "storm"]
    # A hundredth of its minutes is 1 second, and what `make nightly` was told is not for the parts.
    words = [sys.executable, str(NIGHTLY), str(100 / 60), *parts]
    told = os.environ | {"ARGS": "walks storm", "MAKEFLAGS": "-- ARGS=walks EXHAUSTIVE_BOUND_S=1"}
    done = subprocess.run(words, cwd=tmp_path, env=told, capture_output=True, text=True, check=False)
    report = (tmp_path / "dist" / "nightly.md").read_text(encoding="utf-8")
    assert done.returncode == 1
    assert done.stdout.endswith(report)
    rows = [line.split(" | ") for line in report.splitlines()[4:]]
    assert [(row[0].removeprefix("| "), row[1], row[3].removesuffix(" |")) for row in rows[:2]] == [
        ("walks", "failed, see nightly-walks.log", "nothing"),
        ("test-spark-truth-35", "passed", "1 tests: no chromium"),
    ]
    assert rows[2][1] == "cut short"
    assert re.fullmatch(r"\d tests: no time was left \|", rows[2][3])
    assert [row[1] for row in rows[3:]] == ["passed", "cut short", "failed, see nightly-storm.log"]
    assert "there is nothing to storm" in (tmp_path / "dist" / "nightly-storm.log").read_text(
        encoding="utf-8"
    )
