"""`waybill serve`: run the collector."""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from waybill.transport import MissingExtraError, Settings
from waybill.transport.config import DESTINATIONS
from waybill.transport.process import leave_numpy_out

from .. import console
from ..arguments import flag, repeated, seconds, valued
from ..home import check_options, check_own_root
from ..options import EVERY, with_settings
from ..starting import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from waybill.collector.event_logs import Follower


@with_settings(*EVERY)
def serve(
    settings: Settings,
    *,
    drain_timeout_s: Annotated[
        float,
        seconds("--drain-timeout", "How long the projections may take to finish when the collector stops."),
    ] = 30.0,
    idle_timeout_s: Annotated[
        float,
        seconds(
            "--idle-timeout", "How long a connection may be idle, or a request header take to arrive.", 1.0
        ),
    ] = 60.0,
    body_timeout_s: Annotated[
        float, seconds("--body-timeout", "How long a body may take to arrive.", 1.0)
    ] = 30.0,
    without_keys: Annotated[
        bool, flag("--without-keys", "Let other machines connect even if there are no keys.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        repeated("NAME", "Answer only to this host name, besides this machine's own."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        repeated("ADDRESS", "Believe the X-Forwarded-For of this proxy or network of proxies."),
    ] = None,
    tls_cert: Annotated[Path | None, valued("FILE", "Serve TLS with this certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, valued("FILE", "The certificate's private key (PEM).")] = None,
    workers: Annotated[int, valued("N", "Number of processes that serve the address.", min=1, max=64)] = 1,
    log_level: Annotated[
        Literal["error", "warning", "info", "debug"],
        valued("LEVEL", "The lowest level to log: error, warning, info or debug."),
    ] = "info",
    as_json: Annotated[bool, flag("--json", "Print the address and the home as one JSON object.")] = False,
) -> None:
    """Accept OpenLineage events and DeltaFi provenance over HTTP until SIGTERM or Ctrl-C.

    Every acknowledged event is durable, whatever the state of any backend. A runner is started beside the
    collector. Other machines may connect only if there are keys (`waybill keys`), or with --without-keys.
    With --event-logs, the collector also follows Spark's event logs at these places and corrects the
    listener's results, as `waybill spark catch-up` does. Needs the extra `collector`.

    Examples:
      waybill serve --provenance-enabled
      waybill serve --provenance-enabled --event-logs s3://bucket/spark-events
      curl -H 'Content-Type: application/json' -d @event.json http://127.0.0.1:8090/api/v1/lineage
    """
    leave_numpy_out()
    if find_spec("granian") is None:
        raise MissingExtraError("waybill serve", "collector")
    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key go together; give both")
    check_own_root(settings)
    check_options(settings, DESTINATIONS)
    from waybill.collector import serve as serve_collector
    from waybill.collector.logs import show_log

    show_log(settings.log_format, log_level)
    journal = settings.home / "journal.db"
    code = 0

    def on_listening(url: str) -> None:
        if as_json:
            console.json({"url": url, "home": str(settings.home)})
            sys.stdout.flush()
        else:
            console.line(f"listening at {url}, storing events in {journal}")
            console.line(f"its page, for people who look: {url}/")

    try:
        serve_collector(
            settings,
            on_listening=on_listening,
            drain_timeout_s=drain_timeout_s,
            idle_timeout_s=idle_timeout_s,
            body_timeout_s=body_timeout_s,
            without_keys=without_keys,
            allowed_hosts=allow_host or (),
            proxies=[_network(one) for one in proxy or ()],
            workers=workers,
            tls=(tls_cert, tls_key) if tls_cert and tls_key else None,
            follower=_follower(settings),
        )
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    # Everything is closed and durable. A thread of granian that is still ending would abort the process if it
    # used an interpreter that is being torn down, so skip the ordinary exit.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError:
        says = f"{text!r} is no address; give one such as 127.0.0.1, or a network such as 10.1.0.0/16"
        raise typer.BadParameter(says, param_hint="--proxy") from None


def _follower(settings: Settings) -> Follower | None:
    if not settings.event_logs:
        return None
    from waybill.spark.event_logs import EventLogFollower

    return EventLogFollower(settings.event_logs, every_s=settings.event_logs_every_s)
