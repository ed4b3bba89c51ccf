"""What a command prints, and what it answers to what it cannot do: whole, with its exit code.

A file has the commands about one home, at noon of 2026-01-31. The home's events are those of the `.jsonl` of
its name, or of what is before the first point of it. A line that begins with `#` says which fact is shown.
`waybill` runs in this process, all else in a shell, into which the lines are typed that begin with `>`.

`WAYBILL_SNAPSHOTS=write` writes the answers anew, to be read before they are committed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from waybill.transport import Journal, Kind, Settings
from waybill.transport.config import agree

if TYPE_CHECKING:
    from conftest import Run

SNAPSHOTS: Final = sorted((Path(__file__).parent / "snapshots").glob("*.txt"))
IS_WRITING: Final = os.environ.get("WAYBILL_SNAPSHOTS") == "write"
NOON_NS: Final = 1_769_860_800_000_000_000
STEP: Final = re.compile(r"((?:^# .*\n)*)^\$ (.*)\n((?:^> .*\n)*)", re.MULTILINE)
CHANGING: Final = (
    (r"(?:(?<![-\w])|(?<=\b\d{8}-))(?:[0-9a-f]{12}|[0-9a-f]{16})(?=\W)", "<id>"),
    (r"(?<![-\w])[0-9a-f]{64}(?=\W)", "<sha256>"),
    (r"\.[0-9a-f]{8}\.tmp", ".<id>.tmp"),
    (r"wbk_[-\w]+", "<key>"),
    (r"(?<=\bin )\d+\.\d(?= s\b)|(?<=\"seconds\":)\d+\.\d+", "<some>"),
    (r"(?<= deleted here, )\d,[\d]+|(?<=\"size_bytes\":)\d{4}(?=,)", "<some>"),
)
"""What differs each time: nodes, findings, heads of ledgers, temporary files, how long it took, and sizes."""


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda path: path.stem)
def test_a_command_answers_as_its_snapshot_shows(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Path
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOON_NS)
    events = snapshot.with_name(f"{snapshot.name.partition('.')[0]}.jsonl")
    with contextlib.closing(Journal(tmp_path / "home")) as journal:
        agree(journal, Settings.load({"home": journal.home}, env={}, cwd=tmp_path))
        for event in events.read_bytes().splitlines() if events.exists() else ():
            journal.append(Kind.OPENLINEAGE, event)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("WAYBILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("EVENTS", str(events))
    shown = snapshot.read_text(encoding="utf-8")
    answered = ""
    for facts, command, typed in STEP.findall(shown):
        printed = answer(called, monkeypatch, command, re.sub("^> ", "", typed, flags=re.MULTILINE))
        printed = printed.replace(str(tmp_path), "<folder>")
        for changing, stands_for in CHANGING:
            printed = re.sub(changing, stands_for, printed)
        answered += f"{facts}$ {command}\n{typed}{printed}\n\n"
    if IS_WRITING:
        snapshot.write_text(answered, encoding="utf-8")
    assert answered == shown


def answer(called: Run, patch: pytest.MonkeyPatch, command: str, typed: str) -> str:
    """What a command line prints, what it makes in the working folder, and its exit code."""
    first, *others = command.split(" | ")
    words = shlex.split(first.replace("$PWD", str(Path.cwd())))
    if words[0] == "export":
        patch.setenv(*words[1].split("=", 1))
        return "exit code 0"
    if words[0] == "unset":
        patch.delenv(words[1])
        return "exit code 0"
    before = set(Path().iterdir())
    if words[0] == "waybill":
        done = called(*words[1:])
        made = {f"made {path}\n" for path in set(Path().iterdir()) - before}
        code, printed, said = done.returncode, done.stdout, done.stderr + "".join(sorted(made))
    else:
        code, printed, said = run(first, typed)
    if others:
        _, printed, more = run(" | ".join(others), printed)
        said += more
    return f"{printed}{said}exit code {code}"


def run(command: str, typed: str) -> tuple[int, str, str]:
    """The exit code of a shell's command, and what it prints to stdout and stderr."""
    done = subprocess.run(  # noqa: S602 - our own
        command, shell=True, check=False, input=typed, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr
