"""`waybill drain`: end an instance without losing anything."""

from __future__ import annotations

import time

from waybill.cli import console
from waybill.cli.arguments import JsonObject, Timeout
from waybill.cli.commands.flush import flush_with_progress, show_report
from waybill.cli.options import RUNNING, with_settings
from waybill.transport import Journal, Settings, WaybillError


@with_settings(*RUNNING)
def drain(settings: Settings, *, timeout_s: Timeout = None, as_json: JsonObject = False) -> None:
    """Stop the home's collector, flush everything, and say what is left.

    For an instance whose disk is about to be removed. Its collector stops taking requests and finishes those
    under way; then every buffer is drained, every hour is compacted, and everything that can be delivered is.
    Exit code 1 when anything is left: the disk must not be removed then.

    Examples:

    \b
      waybill drain --home /var/lib/waybill --timeout 120
    """
    from waybill.collector.server import stop

    if not Journal.exists(settings.home):
        console.note(f"there is no journal at {settings.home}, so there is nothing to drain")
        return
    began_s = time.monotonic()
    if not stop(settings.home, timeout_s):
        raise WaybillError(
            "the collector still finishes what is under way; drain again, with a longer --timeout"
        )
    left_s = None if timeout_s is None else max(timeout_s - (time.monotonic() - began_s), 0.0)
    show_report(flush_with_progress(settings, left_s), settings, as_json=as_json)
