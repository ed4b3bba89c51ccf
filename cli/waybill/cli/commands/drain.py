"""`waybill drain`: the graceful end of an instance that goes away."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from waybill.cli import console
from waybill.cli.commands.flush import flush_with_progress, show_report
from waybill.cli.options import RUNNING, with_settings
from waybill.transport import FlushReport, Journal, Settings


@with_settings(*RUNNING)
def drain(
    settings: Settings,
    *,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0.0, help="Take no longer than this.", show_default="no limit"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Stop the home's collector, flush everything, and say what is left.

    For an instance that goes away with its disk: its collector takes nothing more and finishes what is under
    way; then every buffer is drained, every hour compacted, and what can be delivered is. Exit code 1 when
    anything is left: the disk must not go then.

    Examples:

    \b
      waybill drain --home /var/lib/waybill --timeout 120
    """
    from waybill.collector.server import stop

    if not Journal.exists(settings.home):
        console.note(f"there is no journal at {settings.home}, so there is nothing to drain")
        return
    began_s = time.monotonic()
    if not stop(settings.home, timeout):
        console.error("the collector still finishes what is under way; drain again, with a longer --timeout")
        raise typer.Exit(console.EXIT_FAILED)
    left_s = None if timeout is None else max(timeout - (time.monotonic() - began_s), 0.0)
    report: FlushReport = flush_with_progress(settings, left_s)
    show_report(report, settings, as_json=as_json)
    if report.left or report.problems:
        raise typer.Exit(console.EXIT_FAILED)
