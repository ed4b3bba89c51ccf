"""`waybill flush`: apply every accepted entry in every projection, now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

from waybill.transport import FlushReport, Journal, JournalError, Settings
from waybill.transport.config import apply_command
from waybill.transport.fallback import waiting_in_fallback

from .. import console
from ..arguments import JsonObject, Timeout, flag
from ..home import as_worked_by, check_home, check_own_root, existing_journal, flush_with_progress
from ..options import RUNNING, with_settings


@with_settings(*RUNNING)
def flush(
    settings: Settings,
    *,
    timeout_s: Timeout = None,
    verbose: Annotated[bool, flag("--verbose", "Show the runner's log.", "-v")] = False,
    as_json: JsonObject = False,
) -> None:
    """Drain every buffer, compact every hour, and list the new files.

    Compacts every hour, including the current one, and waits until each projection has caught up, even a
    backend with a long backlog. --timeout or Ctrl-C ends the wait. Exit code 1 if a projection is held up,
    for example because a backend is down, or has set entries aside as poison. Nothing is lost: the entries
    stay in the journal.

    Examples:
      waybill flush
      waybill flush --home /var/lib/waybill --timeout 60 --json | jq .files
    """
    if verbose:
        console.show_log()
    report = flush_with_progress(settings, timeout_s) if can_flush(settings) else FlushReport()
    show_report(report, settings, as_json=as_json)


def can_flush(settings: Settings) -> bool:
    """Whether the home has a journal, or would get one for entries that wait in the fallback.

    Raises:
        NotFoundError: there is no home, and no entries wait.
        SettingsConflictError: somebody gave a root that is not the home's.
    """
    check_own_root(settings)
    with contextlib.suppress(JournalError):  # `waybill status` reports it
        if waiting_in_fallback(settings):
            return True
    check_home(settings)
    return Journal.exists(settings.home)


def show_report(report: FlushReport, settings: Settings, *, as_json: bool) -> None:
    """Print the result of a flush; exit with code 1 when something is left, held up or poison."""
    with existing_journal(settings) as journal:
        agreed = as_worked_by(settings, journal)
    console.result(report, (str(agreed.root / file) for file in report.files), as_json=as_json)
    if not agreed.provenance_enabled:
        turned_on = apply_command(agreed.home, {"provenance_enabled": True})
        console.note(
            f"provenance_enabled is off, so no provenance files are written; to turn it on: `{turned_on}`"
        )
    console.fail_for(_sentences_of(report))
    if not (report.files or as_json):
        console.note("nothing to flush, and no new files")


def _sentences_of(report: FlushReport) -> Iterator[str]:
    """What is left, held up or poison."""
    for name, count in report.left.items():
        why = report.problems.get(name, "the time is up; flush again, or give a longer --timeout")
        entries = console.counted(count, "entry", "entries")
        yield f"{name} {f'has {entries} left' if count else 'has not written its files'}: {why}"
    for name in report.problems.keys() - report.left.keys():
        yield f"{name}: {report.problems[name]}"
    for name, count in report.poison.items():
        entries = console.counted(count, "entry", "entries")
        yield f"{name} has set aside {entries} that it cannot apply; `waybill poison list` says why"
