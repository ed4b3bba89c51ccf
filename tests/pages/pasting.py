"""A page as a reader follows it: files are saved, commands are pasted, and what is shown is what is printed.

A block with a title is a file. A block `console` is what a terminal shows: after `$ ` a command, which goes
on after a line end with a backslash or within quotes, then what it prints. Of that, `…` stands for anything,
ids and times for any others, and a command with nothing below it may print what it likes. A block `sh` has
only commands. In a command, `<did>` stands for the last id that was printed, and the id of a finding for the
one that was printed in its place. A server is left running for the commands that follow.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from loaded import Loaded

ADDRESS = "127.0.0.1:8090"
"""Where a collector listens by default."""

PROGRAMS = Path(sys.executable).parent
"""The programs of this environment."""

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TIME = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z?"
_FINDING = r"\b(?:[0-9a-f]{16}|[0-9a-f]{12})\b"
_ANY = re.compile(rf"…|{_UUID}|{_TIME}|{_FINDING}|\d{{8}}/\d\d\b|\s+")
_PROGRESS = re.compile(r"^(?:[\u2800-\u28ff] |(?!━+$).*━━|.* \d+/\d+ \d:\d\d:\d\d$|\s*\w+ing \S+\s+…$)")
_FOR_THE_SHELL = re.compile(r"[^\w\s/.:=,@#'\"-]")
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`]*\"")
_INSTALLING = ("make ", "pip ", "python3 -m venv ")
_WAIT_S = 120.0


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str


class Pasted(NamedTuple):
    """A command, what the page shows of it, and what became of it."""

    command: str
    shown: str
    printed: str
    code: int

    @property
    def is_as_shown(self) -> bool:
        """Whether it printed what the page shows; a page that shows nothing leaves it open."""
        return not self.shown or self.findings is not None

    @property
    def findings(self) -> dict[str, str] | None:
        """The ids of findings that were printed, by those of the page; None if other things were."""
        pattern, shown = _pattern(self.shown)
        printed = pattern.fullmatch(self.printed.strip())
        return None if printed is None else dict(zip(shown, printed.groups(), strict=True))


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(*found.groups()) for found in _BLOCK.finditer(text)]


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a block `console`, and what is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        for count in range(1, len(lines) + 1):
            command = "\n".join(lines[:count])
            with contextlib.suppress(ValueError):
                shlex.split(command, comments=True)
                if not command.endswith("\\"):
                    break
        yield command, "\n".join(lines[count:]).strip()


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a block that has commands, and what is shown below it."""
    if block.language == "console":
        yield from commands(block.text)
    elif block.language == "sh":
        command = ""
        for line in block.text.splitlines():
            command += f"{line}\n"
            with contextlib.suppress(ValueError):
                shlex.split(command, comments=True)
                if not line.endswith("\\"):
                    yield command.strip(), ""
                    command = ""


def paste(
    text: str,
    folder: Path,
    *,
    programs: Path = PROGRAMS,
    loaded: Loaded | None = None,
    places: Mapping[str, str] = MappingProxyType({}),
    is_left_out: Callable[[str], bool] = lambda _: False,
    before: Callable[[str], None] = lambda _: None,
) -> Iterator[Pasted]:
    """Follow a page in a folder, as somebody who has never used Waybill and has just installed it.

    Args:
        text: the page.
        folder: everything is below it: the reader's home, and where the reader stands.
        programs: the folder with the `waybill` and the `python` that are tried.
        loaded: runs the lines that begin with `waybill` and need no shell, in place of the program.
        places: folders that stand for others, and for buckets, in what is pasted and in what is printed.
        is_left_out: whether a command, with what is shown below it, cannot be run here; nor can a block then
            that begins with it.
        before: is called with each command before it is pasted.
    """
    stands, seen, findings = folder / "work", [""], dict[str, str]()
    stands.mkdir(exist_ok=True)
    variables, address = environment(folder, programs), ADDRESS
    with contextlib.ExitStack() as servers:
        for block in blocks(text):
            if block.title:
                (stands / block.title).parent.mkdir(parents=True, exist_ok=True)
                (stands / block.title).write_text(block.text, encoding="utf-8")
            pasted = list(commands_of(block))
            for command, shown in () if pasted and is_left_out("\n".join(pasted[0])) else pasted:
                if is_left_out(f"{command}\n{shown}"):
                    continue
                called = command.replace("<did>", seen[-1]).replace(ADDRESS, address)
                for place, other in (*places.items(), *findings.items()):
                    called = called.replace(place, other)
                if called.startswith(_INSTALLING):
                    continue  # what is to be tried is installed; demo and tests are commands of a checkout
                if called.startswith("waybill serve"):
                    address = servers.enter_context(_served(called, stands, variables))
                    continue
                before(command)
                code, printed, stands = _run(called, stands, variables, loaded)
                if called.startswith("export "):
                    variables[called.removeprefix("export ").partition("=")[0]] = printed
                seen += re.findall(_UUID, printed)
                for place, other in places.items():
                    printed = printed.replace(other, place)
                done = Pasted(command, shown, printed, code)
                findings.update(done.findings or {})
                yield done


def _pattern(shown: str) -> tuple[re.Pattern[str], list[str]]:
    """What may be printed, with a group for the id of each finding that is shown; and these."""
    found, end, findings = "", 0, list[str]()
    for any_ in _ANY.finditer(shown):
        kind = any_[0]
        pattern = (
            r".*"
            if kind == "…"
            else r"\s+"
            if kind.isspace()
            else f"({_FINDING})"
            if re.fullmatch(_FINDING, kind)
            else next(one for one in (_UUID, _TIME, r"\d{8}/\d\d") if re.fullmatch(one, kind))
        )
        findings += [kind] if re.fullmatch(_FINDING, kind) else []
        found += re.escape(shown[end : any_.start()]) + pattern
        end = any_.end()
    return re.compile(found + re.escape(shown[end:]), re.DOTALL), findings


def environment(folder: Path, programs: Path) -> dict[str, str]:
    """That of a reader whose home is the folder."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "WAYBILL_"))}
    path = os.pathsep.join((str(programs), own.get("PATH", os.defpath)))
    shown = {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "100"}
    return {**own, **shown, "HOME": str(folder), "PATH": path}


def _run(
    command: str, stands: Path, variables: dict[str, str], loaded: Loaded | None
) -> tuple[int, str, Path]:
    """Run a command on a terminal; returns its exit code, its output, and where the reader stands then."""
    main, terminal = pty.openpty()
    if loaded and command.startswith("waybill ") and not _FOR_THE_SHELL.search(_QUOTED.sub("", command)):
        words, name = shlex.split(command, comments=True), os.ttyname(terminal)
        with ThreadPoolExecutor(1) as beside:
            called = beside.submit(loaded, words, stands, variables, name)
            called.add_done_callback(lambda _: os.close(terminal))
            printed = _printed(main)
        return called.result(), printed, stands
    told = stands / ".where"
    exported = re.match(r"export (\w+)=", command)
    said = f'; printf %s "${exported[1]}"' if exported else ""
    script = f"{command}\ncode=$?; pwd > {shlex.quote(str(told))}{said}; exit $code"
    with subprocess.Popen(
        ["/bin/bash", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
        env=variables,
        cwd=stands,
    ) as process:
        os.close(terminal)
        printed = _printed(main)
    after = Path(told.read_text(encoding="utf-8").strip()) if told.exists() else stands
    told.unlink(missing_ok=True)
    return process.returncode, printed, after


def _printed(main: int) -> str:
    """What is printed on a terminal until nobody has it open, without lines of progress."""
    printed = b""
    # On Linux, an error means that the other side is closed.
    with contextlib.suppress(OSError):
        while part := os.read(main, 65536):
            printed += part
    os.close(main)
    text = re.sub(r"\x1b\[\d*K", "\n", printed.decode())  # what follows is in place of a line of progress
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)
    lines = (line.rstrip() for line in text.splitlines())
    return "\n".join(line for line in lines if not _PROGRESS.match(line)).strip()


@contextlib.contextmanager
def _served(command: str, stands: Path, variables: dict[str, str]) -> Iterator[str]:
    """A server that answers until the page is done, at an address of its own."""
    variables = {**variables, "WAYBILL_LISTEN": "127.0.0.1:0"}
    log = stands / "server.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            ["/bin/bash", "-c", f"exec {command}"], stdout=out, stderr=out, env=variables, cwd=stands
        ) as server,
    ):
        try:
            deadline_s = time.monotonic() + _WAIT_S
            while not (said := re.search(r"listening at http://(\S+?),?\s", log.read_text(encoding="utf-8"))):
                assert server.poll() is None, log.read_text(encoding="utf-8")
                assert time.monotonic() < deadline_s, log.read_text(encoding="utf-8")
                time.sleep(0.05)
            yield said[1]
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)
