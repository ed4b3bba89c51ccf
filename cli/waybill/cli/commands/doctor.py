"""`waybill doctor`: is everything here that Waybill needs, and does it work."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.cli import checks, console
from waybill.cli.findings import report
from waybill.cli.options import EVERY, with_settings
from waybill.transport import Settings


@with_settings(*EVERY)
def doctor(
    settings: Settings,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Check this machine and these settings.

    One line for each check, and one mend where something could be better: the home's disk and file system,
    SQLite, settings in conflict with the home's runner, variables that are none, other packages called
    waybill, Java, the Spark listener's JAR, and whether Marquez answers. Exit code 1 when something is
    broken.

    Examples:

    \b
      waybill doctor
      waybill doctor --home /var/lib/waybill --marquez-url http://marquez:5000
    """
    findings = []
    with console.progress() as bar:
        task = bar.add_task("checking", total=len(checks.CHECKS))
        for check in checks.CHECKS:
            findings.append(check(settings))
            bar.advance(task)
    report(findings, as_json=as_json)
