"""PySpark programs in processes of their own with what they left in the journal, and one session to share."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from served import Collector, without_runner
from stage import PREAMBLE as ATTEMPTS, QUICK_JVM, Play, Scene

from waybill.facets import ProvenanceRecord, RunEvent, decode_event, fold
from waybill.spark import plain_session, spark_home
from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "SPARK_MASTER"
"""Environment variable with another master, for example ``local-cluster[2,1,1024]``."""

PREAMBLE = (
    f"QUICK_JVM = {QUICK_JVM!r}"
    """
import sys
import waybill.spark
HOME, OUT = sys.argv[1:3]
SETTINGS = {"home": HOME, "runner": "none", "system_name": "tests"}
LOCAL = {"master": "local[2]", "conf": {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": OUT + "/warehouse", "spark.driver.extraJavaOptions": QUICK_JVM}}
"""
)

PROGRAM_TIMEOUT_S = 280


@dataclass
class Ran:
    """A program that ended."""

    folder: Path
    status: int
    stdout: str
    stderr: str
    home: Path
    out: Path
    events: list[RunEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read what the journal has now."""
        if Journal.exists(self.home):
            journal = Journal(self.home)
            entries = [entry for entry in journal.read(0, limit=100_000) if entry.kind is Kind.OPENLINEAGE]
            events = [decode_event(entry.body) for entry in entries]
            self.events = [event for event in events if isinstance(event, RunEvent)]
            journal.close()

    def infer_ends(self) -> None:
        """Let a runner end what the program left open, and read what the journal has then."""
        flush(Settings.load({"home": self.home, "system_name": "tests"}, origin="tests", env={}))
        self.read()

    def part(self, name: str, home: Path | None = None) -> Ran:
        """What one part of the program left in a home and a folder of its own."""
        return replace(self, home=home or self.home / name, out=self.out / name, events=[])

    @property
    def records(self) -> list[ProvenanceRecord]:
        return fold(self.events, system_name="tests")

    def written(self, name: str) -> list[ProvenanceRecord]:
        """The records of the writes to a folder of `out`."""
        return [record for record in self.records if (record.data_sink or "").endswith(f"{self.out}/{name}")]

    def application(self, name: str) -> ProvenanceRecord:
        """The record of the application itself."""
        (record,) = [record for record in self.records if record.transforms == (name,)]
        return record


Run = Callable[..., Ran]


def environment(folder: Path, changes: Mapping[str, str | None]) -> dict[str, str]:
    """What a program sees: the Python workers are this Python."""
    own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "TMPDIR": str(folder)}
    whole = {**os.environ, **own, **changes}
    return {name: value for name, value in whole.items() if value is not None}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a program; its text follows `PREAMBLE`."""

    def run(
        text: str,
        *,
        command: tuple[str, ...] = (sys.executable,),
        arguments: tuple[str, ...] = (),
        env: Mapping[str, str | None] | None = None,
        home: Path | None = None,
        timeout_s: float = PROGRAM_TIMEOUT_S,
    ) -> Ran:
        folder = tmp_path_factory.mktemp("program")
        program, out = folder / "program.py", folder / "out"
        program.write_text(PREAMBLE + textwrap.dedent(text))
        home = home or folder / "home"
        ended = subprocess.run(
            [*command, str(program), str(home), str(out), *arguments],
            cwd=folder,
            env=environment(folder, env or {}),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(folder, ended.returncode, ended.stdout, ended.stderr, home, out)

    return run


@pytest.fixture(scope="module")
def play(run: Run) -> Play:
    """Run a program that tells in its last line how what it attempted has ended."""

    def play(
        text: str,
        *,
        status: int = 0,
        tells: bool = True,
        arguments: tuple[str, ...] = (),
        home: Path | None = None,
    ) -> Scene:
        ran = run(ATTEMPTS + text, arguments=arguments, home=home)
        assert ran.status == status, f"{ran.status}\n{ran.stdout}\n{ran.stderr[-4000:]}"
        return Scene(ran, json.loads(ran.stdout.splitlines()[-1]) if tells else {})

    return play


@pytest.fixture(scope="session")
def s3_address() -> Iterator[str]:
    """The address of a server that speaks S3's protocol."""
    from stores import s3_server  # needs what the environments of other PySparks do not have

    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def plain_spark(s3_address: str) -> Iterator[SparkSession]:
    """Spark without tracking, for the tests of a module; its Java and its workers are far from UTC.

    `MASTER` may ask for executors of their own.
    """
    from stores import new_bucket  # as above

    with pytest.MonkeyPatch.context() as patch:
        new_bucket(s3_address, patch)  # its environment leads executors to every bucket
        patch.setenv("JAVA_HOME", "")
        patch.setenv("TZ", "America/New_York")
        patch.setenv("SPARK_HOME", str(spark_home()))
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{QUICK_JVM}' pyspark-shell")
        session = plain_session(os.environ.get(MASTER, "local[2]"))
    yield session
    session.stop()


@pytest.fixture
def not_begun(tmp_path: Path) -> Ran:
    """A program that is yet to run: where its home and what it writes will be."""
    return Ran(tmp_path, 0, "", "", tmp_path / "home", tmp_path / "out")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    """`waybill serve` in a process of its own."""
    with without_runner(tmp_path_factory.mktemp("endpoint")) as collector:
        yield collector


@pytest.fixture(scope="module")
def no_java(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """An environment where this machine has no Java: a PATH with every program but those of a JDK."""
    folder = tmp_path_factory.mktemp("path")
    for place in os.environ["PATH"].split(os.pathsep):
        for program in sorted(Path(place).glob("*")):
            link = folder / program.name
            if not program.name.startswith(("java", "keytool", "jar")) and not link.is_symlink():
                link.symlink_to(program)
    assert shutil.which("java", path=str(folder)) is None
    return {"PATH": str(folder), "JAVA_HOME": None}
