"""`waybill spark`: what Spark itself knows of jobs that no tracked session watched."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from waybill.cli import console
from waybill.cli.arguments import FORMS, JsonLines, moment
from waybill.cli.home import agreed_settings, checked_root
from waybill.cli.options import RUNNING, with_settings
from waybill.transport import Journal, Settings, WaybillError
from waybill.transport.home import Home
from waybill.transport.permissions import make_private

if TYPE_CHECKING:
    from waybill.spark.event_logs import CaughtUp, EventLog, LoggedApplication

app: Final = typer.Typer(
    no_args_is_help=True, help="Correct what Spark's listener says by what Spark itself has noted."
)


@app.command("catch-up")
@with_settings(*RUNNING)
def catch_up(
    settings: Settings,
    *,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="PLACE...",
            help="Event logs, folders of them as spark.eventLog.dir names (s3://…, abfss://… too), or "
            "a History Server's address.",
        ),
    ],
    since_ms: Annotated[
        int | None,
        typer.Option(
            "--since",
            parser=moment,
            metavar="WHEN",
            help=f"Only applications that ended then or later, or still run: {FORMS}.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be corrected.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Find the failed writes in Spark's event logs that its listener called complete, and correct them.

    Reads logs of one file or of rolling ones, plain or compressed by zstd, lz4 or gzip, also of applications
    that still run or were killed, and ZIP files of the History Server's. Each failed execution is matched
    with the runs of the same application in the archive and the journal. A failed write without a run becomes
    a record of its own, with the annotation `run` "not known". What is told already is left alone, so that
    the command may be repeated. Exit code 1 when a log could not be read; the others are done.

    Examples:

    \b
      waybill spark catch-up /var/log/spark-events
      waybill spark catch-up http://history:18080 --since 1d
      waybill spark catch-up --dry-run --json app-20261122-0007.zstd | jq .cause
    """
    applications, unread = _read(places, since_ms)
    _correct(settings, applications, dry_run=dry_run, as_json=as_json)
    for problem in unread:
        console.error(problem)
    if unread:
        raise typer.Exit(console.EXIT_FAILED)


@app.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@with_settings()
def submit(
    settings: Settings,
    *,
    arguments: Annotated[list[str], typer.Argument(metavar="ARGUMENTS...", help="Those of spark-submit.")],
) -> None:
    """Run spark-submit with an event log, then catch up from it.

    The arguments are spark-submit's own, its output goes where it would go, and its exit code is this
    command's. Settings come from the environment or from waybill.yaml. The event log lies in the home until
    it is caught up from; where Spark logs already, say `waybill spark catch-up` of that folder instead. The
    events of the job's listener must come to the same home, by a session of Waybill's or by a collector.

    Examples:

    \b
      waybill spark submit --master local[4] job.py 2026-11-22
      WAYBILL_HOME=/var/lib/waybill waybill spark submit --packages org.example:lib:1.0 job.py
    """
    from waybill.spark.event_logs import submit as run

    agreed = agreed_settings(settings)
    logs = agreed.home / "spark-event-logs"
    make_private(agreed.home)
    make_private(logs)
    folder = Path(tempfile.mkdtemp(dir=logs))
    status = run(arguments, folder)
    try:
        if not any(folder.iterdir()):
            console.note("Spark wrote no event log here, so nothing is caught up")
            folder.rmdir()
        elif _is_caught_up(settings, folder, status):
            shutil.rmtree(folder)
        else:
            console.note(f"the event log is kept for `waybill spark catch-up {folder}`")
    except (WaybillError, OSError) as error:
        console.error(f"{error}; then `waybill spark catch-up {folder}`")
    raise typer.Exit(status)


def _is_caught_up(settings: Settings, folder: Path, status: int) -> bool:
    applications, unread = _read([str(folder)], None)
    found = _correct(settings, applications, status=status)
    for problem in unread:
        console.error(problem)
    return not unread and all(one.is_known for one in found)


def _correct(
    settings: Settings,
    applications: Sequence[LoggedApplication],
    *,
    status: int = 0,
    dry_run: bool = False,
    as_json: bool = False,
) -> list[CaughtUp]:
    """Emit what corrects the stored events of these applications, and show it."""
    from waybill.spark.event_logs import catch_up as compare, stored_events

    agreed = agreed_settings(settings)
    if not Journal.exists(agreed.home):
        raise WaybillError(f"there is no journal at {agreed.home}; give its folder with --home")
    sources = stored_events(agreed.home, checked_root(agreed), applications)
    found = list(compare(applications, sources, status=status))
    if not dry_run and any(one.events for one in found):
        with contextlib.closing(Home.open(agreed, may_spool=False)) as home:
            for one in found:
                for event in one.events:
                    home.emit(event)
    _show(found, as_json=as_json, would="would be " if dry_run else "")
    return found


def _read(places: Sequence[str], since_ms: int | None) -> tuple[list[LoggedApplication], list[str]]:
    """The applications of all logs that can be read, and what is wrong with the others."""
    from waybill.spark.event_logs import EventLogError, LoggedApplication

    applications, unread = [], []
    with tempfile.TemporaryDirectory(prefix="waybill-") as folder:
        for place in places:
            try:
                for log in _logs(place, Path(folder), since_ms):
                    try:
                        applications.append(LoggedApplication.read(log))
                    except EventLogError as error:
                        unread.append(str(error))
            except EventLogError as error:
                unread.append(str(error))
    return [one for one in applications if _is_since(one, since_ms)], unread


def _logs(place: str, folder: Path, since_ms: int | None) -> Iterable[EventLog]:
    from waybill.spark.event_logs import find_logs, logs_of_server

    is_server = place.startswith(("http://", "https://"))
    return logs_of_server(place, folder, since_ms) if is_server else find_logs(place)


def _is_since(application: LoggedApplication, since_ms: int | None) -> bool:
    return since_ms is None or application.ended_ms is None or application.ended_ms >= since_ms


def _show(found: Sequence[CaughtUp], *, as_json: bool, would: str) -> None:
    corrections = [correction for one in found for correction in one.corrections]
    if as_json:
        for correction in corrections:
            shown = msgspec.structs.asdict(correction)
            del shown["event"]
            console.json(shown)
    elif corrections:
        rows = [
            (one.run if one.is_run_known else "not known", one.job, one.output or "", one.cause)
            for one in corrections
        ]
        console.table(["run", "job", "output", "cause"], rows)
    for one in found:
        what = f"{one.failed} executions failed, {len(one.corrections)} {would}corrected"
        if one.confirmations:
            what += f", {len(one.confirmations)} writes {would}confirmed"
        unknown = f"no event of it is here; its {one.failed} failures are left out"
        console.note(f"{one.application} ({one.name}): {what if one.is_known else unknown}")
