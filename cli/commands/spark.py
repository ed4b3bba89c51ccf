"""`waybill spark`: corrections from Spark's own logs, for jobs that no tracked session watched."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from waybill.transport import NotFoundError, Settings, WaybillError
from waybill.transport.counting import counted
from waybill.transport.home import Home
from waybill.transport.mounts import refuse_network_file_system
from waybill.transport.permissions import make_private

from .. import console
from ..arguments import FORMS, Csv, JsonLines, argument, flag, moment, valued
from ..commanding import Group
from ..home import agreed_settings, check_home, checked_root
from ..options import RUNNING, with_settings

if TYPE_CHECKING:
    from waybill.spark.event_logs import CaughtUp, EventLog, LoggedApplication

app: Final = Group(help="Correct the Spark listener's results from Spark's own event logs.")


@app.command("catch-up")
@with_settings(*RUNNING)
def catch_up(
    settings: Settings,
    *,
    places: Annotated[
        list[str],
        argument(
            "PLACE...",
            "Event logs, folders of them as in spark.eventLog.dir (also s3://…, abfss://…), or the "
            "address of a History Server.",
        ),
    ],
    since_ms: Annotated[
        int | None,
        valued(
            "WHEN",
            f"Only applications that ended at this time or later, or still run: {FORMS}.",
            "--since",
            parser=moment,
        ),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be corrected.")] = False,
    as_json: JsonLines = False,
    as_csv: Csv = False,
) -> None:
    """Find failed writes in Spark's event logs that the listener reported as complete, and correct them.

    Reads single and rolling logs, plain or compressed with zstd, lz4 or gzip, including those of applications
    that still run or were killed, and ZIP files from the History Server. Each failed execution is matched
    with the runs of the same application in the archive and the journal. A failed write without a run becomes
    a record of its own, with the annotation `run` "not known". Earlier corrections are left alone, so you can
    repeat the command. Exit code 1 if a log could not be read; the others are still processed. Exit code 2 if
    a place has no logs; then nothing is done.

    Examples:
      waybill spark catch-up /var/log/spark-events
      waybill spark catch-up http://history:18080 --since 1d
      waybill spark catch-up --dry-run --json app-20261122-0007.zstd | jq .cause
    """
    check_home(settings)
    applications, unread = _read(places, since_ms)
    _correct(settings, applications, dry_run=dry_run, as_json=as_json, as_csv=as_csv)
    console.fail_for(unread)


@app.command("submit", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@with_settings()
def submit(
    settings: Settings,
    *,
    arguments: Annotated[list[str], argument("ARGUMENTS...", "Arguments of spark-submit.")],
) -> None:
    """Run spark-submit with an event log, then catch up from it.

    The arguments are spark-submit's own. Its output is passed through, and its exit code is this command's.
    Settings come from the environment or from waybill.yaml. The event log stays in the home until the command
    has caught up from it. If Spark already writes event logs, run `waybill spark catch-up` on that folder
    instead. The events of the job's listener must reach the same home, through a Waybill session or a
    collector.

    Examples:
      waybill spark submit --master local[4] job.py 2026-11-22
      WAYBILL_HOME=/var/lib/waybill waybill spark submit --packages org.example:lib:1.0 job.py
    """
    from waybill.spark.event_logs import submit as run

    # Like any program that emits, this one creates the home if there is none.
    refuse_network_file_system(settings.home)
    make_private(settings.home)
    logs = settings.home / "spark-event-logs"
    make_private(logs)
    folder = Path(tempfile.mkdtemp(dir=logs))
    status = run(arguments, folder)
    try:
        if not any(folder.iterdir()):
            console.note("Spark wrote no event log here, so there is nothing to catch up from")
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
    as_csv: bool = False,
) -> list[CaughtUp]:
    """Emit the events that correct the stored events of these applications, and show the corrections."""
    from waybill.spark.event_logs import catch_up as compare, stored_events

    agreed = agreed_settings(settings)
    sources = stored_events(agreed.home, checked_root(agreed), applications)
    found = list(compare(applications, sources, status=status))
    if not dry_run and any(one.events for one in found):
        with contextlib.closing(Home.open(agreed)) as home:
            for one in found:
                for event in one.events:
                    home.emit(event)
    _show(found, as_json=as_json, as_csv=as_csv, would="would be " if dry_run else "")
    return found


def _read(places: Sequence[str], since_ms: int | None) -> tuple[list[LoggedApplication], list[str]]:
    """The applications of all logs that can be read, and the problems of the others."""
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
            except NotFoundError:
                raise
            except EventLogError as error:
                unread.append(str(error))
    if since_ms is not None:
        applications = [one for one in applications if one.ended_ms is None or one.ended_ms >= since_ms]
    return applications, unread


def _logs(place: str, folder: Path, since_ms: int | None) -> Iterable[EventLog]:
    from waybill.spark.event_logs import find_logs, logs_of_server

    is_server = place.startswith(("http://", "https://"))
    return logs_of_server(place, folder, since_ms) if is_server else find_logs(place)


def _show(found: Sequence[CaughtUp], *, as_json: bool, as_csv: bool, would: str) -> None:
    corrections = [correction for one in found for correction in one.corrections]
    if as_json:
        for correction in corrections:
            shown = msgspec.structs.asdict(correction)
            del shown["event"]
            console.json(shown)
    elif corrections or as_csv:
        rows = [
            (one.run if one.is_run_known else "not known", one.job, one.output or "", one.cause)
            for one in corrections
        ]
        console.table(["run", "job", "output", "cause"], rows, as_csv=as_csv)
    for one in found:
        what = f"{counted(one.failed, 'execution')} failed, {len(one.corrections):,} {would}corrected"
        if one.confirmations:
            what += f", {counted(len(one.confirmations), 'write')} {would}confirmed"
        if one.ends:
            what += f", its end {would}inferred"
        unknown = f"no event of it is here; {counted(one.failed, 'failure')} of it left out"
        console.note(f"{one.application} ({one.name}): {what if one.is_known else unknown}")
