"""What a command prints, and what it answers to what it cannot do: whole, with its exit code.

A file has the commands about one home, at noon of 2026-01-31. The home's events are those of the `.jsonl` of
its name, or of what is before the first point of it. A line that begins with `#` says which fact is shown.
`waybill` runs in this process, and all else in a shell, into which the lines are typed that begin with `>`.
Three more are known: `sleep` moves the time; `emit` sends the lines typed, each an event, the arguments of
`events.event` or an array of records, and what is refused becomes a reject (`emit --unchecked` admits all);
`marquez` starts the backend at `$MARQUEZ`, which then answers `marquez 422`, or not at all: `marquez away`;
`marquez --new` starts an empty one.

`WAYBILL_SNAPSHOTS=write` writes the answers anew, to be read before they are committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from contract_server import ContractServer
from events import event
from one_worker import shared_worker, used_by_all

from waybill.transport import AdmissionError, Journal, Kind, Rejects, Settings
from waybill.transport.admission import Redaction, check_records
from waybill.transport.config import agree

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    (r"(?<= deleted here, )\d,[\d]+|(?<=\"size_bytes\":)\d{4,5}(?=,)|\d+\.\d KiB(?=\n)", "<some>"),
)
"""What differs each time: nodes, findings, heads of ledgers, temporary files, how long it took, and sizes."""


@pytest.fixture(scope="module", autouse=True)
def _one_process_of_analyzers() -> Iterator[None]:
    with shared_worker() as worker, used_by_all(worker):
        yield


@pytest.mark.parametrize("snapshot", SNAPSHOTS, ids=lambda path: path.stem)
def test_a_command_answers_as_its_snapshot_shows(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: Path
) -> None:
    shell = Shell(called, monkeypatch, tmp_path)
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
    monkeypatch.setenv("PWD", str(tmp_path / "here"))
    shown = snapshot.read_text(encoding="utf-8")
    answered = ""
    for facts, command, typed in STEP.findall(shown):
        printed = shell.answer(command, re.sub("^> ", "", typed, flags=re.MULTILINE))
        printed = printed.replace(str(tmp_path), "<folder>").replace(shell.marquez.url, "<marquez>")
        for changing, stands_for in CHANGING:
            printed = re.sub(changing, stands_for, printed)
        answered += f"{facts}$ {command}\n{typed}{printed}\n\n"
    shell.marquez.refuse()
    if IS_WRITING:
        snapshot.write_text(answered, encoding="utf-8")
    assert answered == shown


class Shell:
    """Runs command lines, `waybill` in this process; the time stands still, but for `sleep`."""

    def __init__(self, called: Run, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._called = called
        self._patch = patch
        self._home = folder / "home"
        self._now_ns = NOON_NS
        self.marquez = ContractServer()
        patch.setattr(time, "time_ns", lambda: self._now_ns)

    def answer(self, command: str, typed: str) -> str:
        """What a command line prints, what it makes in the working folder, and its exit code."""
        word, *words = shlex.split(os.path.expandvars(command.partition(" | ")[0]))
        if word == "export":
            self._patch.setenv(*words[0].split("=", 1))
        elif word == "unset":
            self._patch.delenv(words[0])
        elif word == "sleep":
            self._now_ns += int(words[0]) * 10**9
        elif word == "marquez":
            self._set_up_marquez(*words)
        elif word == "emit":
            self._emit(typed.splitlines(), is_checked=not words)
        elif word == "waybill":
            return self._answer_of_waybill(words, command.partition(" | ")[2])
        else:
            done = run(command, typed)
            return f"{done.stdout}{done.stderr}exit code {done.returncode}"
        return "exit code 0"

    def _set_up_marquez(self, fault: str | None = None) -> None:
        self.marquez.refuse()
        if fault == "--new":
            self.marquez, fault = ContractServer(), None
        if fault != "away":
            self.marquez.start()
            self.marquez.fault = fault
        self._patch.setenv("MARQUEZ", self.marquez.url)

    def _emit(self, lines: list[str], *, is_checked: bool) -> None:
        with contextlib.closing(Journal(self._home)) as journal:
            for line in lines:
                sent = json.loads(line)
                kind = Kind.PROVENANCE if isinstance(sent, list) else Kind.OPENLINEAGE
                body = event(**sent) if "run" in sent and "eventTime" not in sent else line.encode()
                try:
                    if is_checked:
                        body = check_records(body)[0] if kind is Kind.PROVENANCE else Redaction().admit(body)
                    journal.append(kind, body, "tests")
                except AdmissionError as error:
                    Rejects(journal).add(kind, [(body, str(error))])

    def _answer_of_waybill(self, words: list[str], into: str) -> str:
        before = set(Path().iterdir())
        done = self._called(*words)
        made = "".join(sorted(f"made {path}\n" for path in set(Path().iterdir()) - before))
        printed = run(into, done.stdout).stdout if into else done.stdout
        return f"{printed}{done.stderr}{made}exit code {done.returncode}"


def run(command: str, typed: str) -> subprocess.CompletedProcess[str]:
    """Run a shell's command."""
    return subprocess.run(  # noqa: S602 - our own
        command, shell=True, check=False, input=typed, capture_output=True, text=True, timeout=60
    )
