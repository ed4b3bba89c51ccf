"""OpenLineage's client for Java, which Maven brings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from clients import call, records_of
from served import without_runner

from waybill.facets import FinalState

pytestmark = pytest.mark.ecosystem

CLIENT = Path(__file__).with_name("java")


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder with the client and what it needs."""
    maven = shutil.which("mvn")
    if maven is None or shutil.which("java") is None:
        pytest.skip("Maven or Java is not installed (on Debian or Ubuntu: maven, default-jdk-headless)")
    folder = tmp_path / "libraries"
    copy = ("--quiet", "--batch-mode", "dependency:copy-dependencies", f"-DoutputDirectory={folder}")
    done = call(maven, *copy, "--file", CLIENT / "pom.xml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    return folder


def test_what_the_java_client_sends_is_recorded(libraries: Path, home: Path, root: Path) -> None:
    java = shutil.which("java")
    assert java is not None
    with without_runner(home) as collector:
        done = call(java, "-cp", f"{libraries}/*", CLIENT / "Client.java", collector.url, cwd=home.parent)
    assert done.returncode == 0, done.stderr
    ends = {record.transforms[0]: record.final_state for record in records_of(home, root)}
    assert ends == {"good": FinalState.COMPLETE, "bad": FinalState.ERROR}
