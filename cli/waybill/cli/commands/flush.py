"""`waybill flush`: take every accepted entry through every projection, now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from waybill.cli import console
from waybill.cli.arguments import JsonObject, Timeout
from waybill.cli.home import agreed_settings, tell_of_conflicts
from waybill.cli.options import RUNNING, with_settings
from waybill.transport import FlushReport, Journal, Settings, flush as flush_journal


def flush_with_progress(settings: Settings, timeout_s: float | None = None) -> FlushReport:
    """Flush a home behind a progress bar, and say where its live runner works with other settings."""
    tell_of_conflicts(settings)
    with console.progress("flushing") as update:

        def show(done: int, total: int, behind: Sequence[str]) -> None:
            text = f"flushing, waiting for {', '.join(behind)}" if behind else "flushing"
            update(description=text, completed=done, total=total)

        return flush_journal(settings, timeout_s=timeout_s, on_progress=show)


@with_settings(*RUNNING)
def flush(
    settings: Settings,
    *,
    timeout_s: Timeout = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the runner's log.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Drain every buffer, compact, wait, and list the files made.

    Every hour is compacted, including the current one. The command waits until each projection is done, also
    a backend with a long backlog; --timeout or Ctrl-C ends the waiting. Exit code 1 when a projection is held
    up, for example by a backend that is down, or has set entries aside as poison. Nothing is lost: they stay
    in the journal.

    Examples:

    \b
      waybill flush
      waybill flush --home /var/lib/waybill --timeout 60 --json | jq .files
    """
    if verbose:
        console.show_log()
    if Journal.exists(settings.home):
        report = flush_with_progress(settings, timeout_s)
    else:
        report = FlushReport()
        console.note(f"there is no journal at {settings.home} yet, so there is nothing to flush")
    show_report(report, settings, as_json=as_json)


def show_report(report: FlushReport, settings: Settings, *, as_json: bool) -> None:
    """Print the result of a flush; exit with code 1 when something is left, held up or poison."""
    agreed = agreed_settings(settings)
    if as_json:
        console.json(report)
    else:
        for file in report.files:
            console.line(str(agreed.root / file))
    if not agreed.provenance_enabled:
        console.note("provenance_enabled is off, so there are no provenance files; turn it on to have them")
    for name, count in report.left.items():
        why = report.problems.get(name, "the time is up; flush again, or give it a longer --timeout")
        console.error(f"{name} has {count} entries left: {why}")
    for name in report.problems.keys() - report.left.keys():
        console.error(f"{name}: {report.problems[name]}")
    for name, count in report.poison.items():
        console.error(
            f"{name} has set aside {count} entries that it cannot apply; `waybill poison list` says why"
        )
    if report.left or report.problems or report.poison:
        raise typer.Exit(console.EXIT_FAILED)
