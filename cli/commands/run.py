"""`waybill run`: a package's program, tracked from outside."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from waybill.facets.context import LED, URL, find_around, find_trace, lead_to
from waybill.transport import Settings
from waybill.transport.config import DESTINATIONS
from waybill.transport.config.found_files import read_settings_file

from .. import console
from ..arguments import FORMS, argument, flag, moment, seconds, valued
from ..home import check_options
from ..options import with_settings

_DK_CONFIG: Final = "~/.dk/config.yaml"


@with_settings("home", "root", "system_name", "provenance_enabled", "marquez_url")
def run(
    settings: Settings,
    *,
    package: Annotated[Path, argument("PACKAGE", "The package's folder, or its manifest.")],
    arguments: Annotated[
        list[str] | None, argument("ARGS", "Further arguments for it, behind --.", show_default=False)
    ] = None,
    heartbeat_s: Annotated[
        float,
        seconds("--heartbeat", "How often to say it runs; 0: never."),
    ] = 60,
    nominal_time: Annotated[str | None, valued("WHEN", f"The time that the run is for: {FORMS}.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only print the event that would begin the run.")] = False,
) -> None:
    """Run a package's program, and keep when it began, how it ended, and what happened within it.

    The manifest, dk.yaml or waybill-package.yaml, names the program and the datasets that it reads and
    writes. The run's events are START, RUNNING from time to time, and COMPLETE, FAIL with the exit code and
    the last lines of stderr, or ABORT after a signal or a timeout. The program learns of its run from its
    environment, so that the runs of Spark, dbt, Airflow or a Tracker within it are below its own.

    The exit code is the program's; 124 after a timeout, 127 if the program is not there. Signals go on to it,
    and nothing that it has started is left running.

    Examples:
      waybill run ./my-package
      waybill run ./my-package -- --date 2026-01-31
      waybill run ./my-package --nominal-time yesterday --dry-run
    """
    from waybill.pipelines import RunReport, find_manifest, first_line, read_package, run_package

    # The group of a checkout may write to it as its user may; nobody runs what another user wrote.
    read = read_package(package, by_group=find_manifest(package).stat().st_uid == os.geteuid())
    environment = {**os.environ, "WAYBILL_HOME": str(settings.home), **read.manifest.runtime.env}
    report = RunReport(
        read,
        arguments or (),
        environment=environment,
        around=find_around(environment),
        trace=find_trace(environment),
        nominal_ms=None if nominal_time is None else moment(nominal_time, option="--nominal-time"),
        fingerprint_max_bytes=settings.fingerprint_max_bytes,
    )
    if dry_run:
        console.body(report.event("START"))
        return
    from waybill.transport.home import Home
    from waybill.transport.receiver import Receiver

    check_options(settings, DESTINATIONS)
    home = Home.open(_with_backend(settings, environment))
    with (
        contextlib.closing(home),
        contextlib.closing(Receiver(lambda body: home.emit(report.below.adopt(body)))) as receiver,
    ):
        if led := lead_to(receiver.url, environment, read.folder):
            receiver.start()
            environment |= led
        outcome = run_package(report, home.emit, environment, say=console.error, heartbeat_s=heartbeat_s)
    if outcome.state != "COMPLETE":
        console.error(first_line(outcome.reason))
    if outcome.unkept:
        console.error(f"{outcome.unkept} events of the run are not kept; `waybill doctor` may say why")
    raise typer.Exit(outcome.code)


def _with_backend(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """The settings with the backend of OPENLINEAGE_URL, or else of dk's configuration, if they have none.

    Raises:
        SettingsError: it cannot be used.
    """
    if settings.chosen("backends") or settings.chosen("marquez_url"):
        return settings
    url = environment.get(URL)
    if url and url != environment.get(LED):
        given: object = {
            "backend": "custom",
            "endpoint": url,
            "api_key": environment.get("OPENLINEAGE_API_KEY"),
        }
        origin = f"environment {URL}"
    else:
        path = Path(_DK_CONFIG).expanduser()
        found = read_settings_file(path).get("lineage")
        if found is None:
            return settings
        given, origin = found, str(path)
    return settings.with_values({"backends": [given]}, origin)
