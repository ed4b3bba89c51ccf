"""`waybill doctor`: is everything here that Waybill needs, and does it work."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from waybill.cli import checks, console
from waybill.cli.options import EVERY, with_settings
from waybill.transport import Settings

_STYLES: Final = {checks.Level.OK: "green", checks.Level.NOTE: "yellow", checks.Level.BROKEN: "bold red"}


@with_settings(*EVERY)
def doctor(
    settings: Settings,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Check this machine and these settings.

    One line for each check, and one mend where something could be better: the home's disk and file system,
    SQLite, settings in conflict with the home's runner, other packages called waybill, Java, the Spark
    listener's JAR, and whether Marquez answers. Exit code 1 when something is broken.

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
    if as_json:
        console.json(findings)
    else:
        for finding in findings:
            _show(finding)
    if any(finding.level is checks.Level.BROKEN for finding in findings):
        raise typer.Exit(console.EXIT_FAILED)


def _show(finding: checks.Finding) -> None:
    level = (f"{finding.level.value:7}", _STYLES[finding.level])
    console.line(level, f" {finding.check}: {finding.says}")
    if finding.mend:
        console.line(f"        mend: {finding.mend}")
