"""`waybill drain`: shut an instance down without losing anything."""

from __future__ import annotations

from waybill.transport import FlushReport, Settings, WaybillError
from waybill.transport.clock import SYSTEM_CLOCK

from ..arguments import JsonObject, Timeout
from ..home import flush_with_progress
from ..options import RUNNING, with_settings
from .flush import can_flush, show_report


@with_settings(*RUNNING)
def drain(settings: Settings, *, timeout_s: Timeout = None, as_json: JsonObject = False) -> None:
    """Stop the home's collector, flush everything, and report what is left.

    Run it before you remove an instance's disk. The collector stops accepting requests and finishes those in
    progress. Then every buffer is drained, every hour is compacted, and everything that can be delivered is
    delivered. Exit code 1 if anything is left: keep the disk then.

    Examples:
      waybill drain --home /var/lib/waybill --timeout 120
    """
    from waybill.collector.server import stop

    if not can_flush(settings):
        show_report(FlushReport(), settings, as_json=as_json)
        return
    began_s = SYSTEM_CLOCK.monotonic_s()
    if not stop(settings.home, timeout_s):
        raise WaybillError("the collector is still finishing requests; drain again with a longer --timeout")
    left_s = None if timeout_s is None else max(timeout_s - (SYSTEM_CLOCK.monotonic_s() - began_s), 0.0)
    show_report(flush_with_progress(settings, left_s), settings, as_json=as_json)
