"""What a command prints, and what it answers to what it cannot do: whole, with its exit code.

A file has the commands about one home, whose events are those of the `.jsonl` of its name, if there is one.

`WAYBILL_SNAPSHOTS=write` writes the answers anew, to be read before they are committed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from waybill.transport import Journal, Kind

if TYPE_CHECKING:
    from conftest import Run

SNAPSHOTS: Final = sorted((Path(__file__).parent / "snapshots").glob("*.txt"))
IS_WRITING: Final = os.environ.get("WAYBILL_SNAPSHOTS") == "write"


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda path: path.stem)
def test_a_command_answers_as_its_snapshot_shows(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Path
) -> None:
    events = snapshot.with_suffix(".jsonl")
    with contextlib.closing(Journal(tmp_path / "home")) as journal:
        for event in events.read_bytes().splitlines() if events.exists() else ():
            journal.append(Kind.OPENLINEAGE, event)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("WAYBILL_HOME", str(tmp_path / "home"))
    shown = snapshot.read_text(encoding="utf-8")
    answered = ""
    for command in re.findall(r"^\$ (.*)$", shown, re.MULTILINE):
        done = called(*shlex.split(command)[1:])
        printed = f"{done.stdout}{done.stderr}".replace(str(tmp_path), "<folder>")
        answered += f"$ {command}\n{printed}exit code {done.returncode}\n\n"
    if IS_WRITING:
        snapshot.write_text(answered, encoding="utf-8")
    assert answered == shown
    assert list(Path().iterdir()) == [], "nothing is made"
