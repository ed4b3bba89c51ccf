"""`waybill serve`: run the collector."""

from __future__ import annotations

import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from waybill.cli import console
from waybill.cli.options import EVERY, with_settings
from waybill.transport import Settings

if TYPE_CHECKING:
    from waybill.collector.event_logs import Follower

EXIT_INTERRUPTED: Final = 130


@with_settings(*EVERY)
def serve(
    settings: Settings,
    *,
    drain_timeout_s: Annotated[
        float,
        typer.Option(
            "--drain-timeout",
            metavar="SECONDS",
            min=0.0,
            help="How long the projections may take to finish at a stop.",
        ),
    ] = 30.0,
    idle_timeout_s: Annotated[
        float,
        typer.Option(
            "--idle-timeout",
            metavar="SECONDS",
            min=1.0,
            help="How long a connection may be without a request.",
        ),
    ] = 300.0,
    header_timeout_s: Annotated[
        float,
        typer.Option(
            "--header-timeout",
            metavar="SECONDS",
            min=1.0,
            help="How long a request header may take to arrive.",
        ),
    ] = 10.0,
    body_timeout_s: Annotated[
        float,
        typer.Option(
            "--body-timeout", metavar="SECONDS", min=1.0, help="How long a body may take to arrive."
        ),
    ] = 30.0,
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Let other machines in even if there are no keys.")
    ] = False,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Speak TLS with this certificate, PEM.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key, PEM.")] = None,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="How many processes serve the address.")
    ] = 1,
    log_level: Annotated[
        Literal["error", "warning", "info", "debug"],
        typer.Option(metavar="LEVEL", help="The least that is logged: error, warning, info or debug."),
    ] = "info",
) -> None:
    """Take OpenLineage events and DeltaFi provenance over HTTP until SIGTERM or Ctrl-C.

    What is acknowledged is durable, whatever the state of any backend; a runner is started beside the
    collector. Other machines are let in only if there are keys (`waybill keys`), or with --without-keys.
    With --event-logs it also corrects what Spark's listener says by the event logs at these places, as
    `waybill spark catch-up` does, while they are written.
    Needs the extra: pip install 'waybill-lineage[collector]'.

    Examples:

    \b
      waybill serve --provenance-enabled
      waybill serve --provenance-enabled --event-logs s3://bucket/spark-events
      curl -H 'Content-Type: application/json' -d @event.json http://127.0.0.1:8090/api/v1/lineage
    """
    if find_spec("granian") is None:
        console.error("waybill serve needs granian: pip install 'waybill-lineage[collector]'")
        raise typer.Exit(console.EXIT_USAGE)
    if (tls_cert is None) != (tls_key is None):
        raise typer.BadParameter("--tls-cert and --tls-key go together; give both")
    from waybill.collector import serve as serve_collector
    from waybill.collector.logs import show_log

    show_log(settings.log_format, log_level)
    journal = settings.home / "journal.db"
    code = 0
    try:
        serve_collector(
            settings,
            on_listening=lambda url: console.line(f"listening at {url}, keeping what comes in {journal}"),
            drain_timeout_s=drain_timeout_s,
            idle_timeout_s=idle_timeout_s,
            header_timeout_s=header_timeout_s,
            body_timeout_s=body_timeout_s,
            without_keys=without_keys,
            workers=workers,
            tls=(tls_cert, tls_key) if tls_cert and tls_key else None,
            follower=_follower(settings),
        )
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    # Everything is closed and durable. A thread of granian that is still ending would abort the process if it
    # asked for an interpreter that is being torn down, so there is no ordinary exit.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)


def _follower(settings: Settings) -> Follower | None:
    if not settings.event_logs:
        return None
    from waybill.spark.event_logs import EventLogFollower

    return EventLogFollower(settings.event_logs, every_s=settings.event_logs_every_s)
