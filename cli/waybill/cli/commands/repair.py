"""`waybill repair`: file again what a root has lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from waybill.cli import console
from waybill.cli.arguments import JsonObject
from waybill.cli.home import agreed_settings, checked_root
from waybill.cli.options import with_settings
from waybill.transport import Settings

if TYPE_CHECKING:
    from waybill.exporter.repairing import RepairReport


@with_settings("home", "root", "system_name", "provenance_annotations_allowed")
def repair(
    settings: Settings,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be filed again.", show_default=False)
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, help="How many processes work.", show_default="one for each core"
        ),
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """File again what a root has lost, from its archive and from the home's journal.

    The root is verified first. What the archive lacks is filed from the journal; hours whose files were
    removed, altered, forged or damaged are rebuilt from the archive, and rows that are there stay. The
    findings stay until somebody settles them with `waybill verify --accept`. It may be run again at any time.
    Exit code 1 when something is left that neither the archive nor the journal has.

    Examples:

    \b
      waybill repair --dry-run
      waybill repair --root /data/lineage
      waybill repair --json | jq -r '.left[]'
    """
    from waybill.exporter import Wanted, repair as repair_root

    agreed = agreed_settings(settings)
    root = checked_root(agreed)
    wanted = Wanted(system_name=agreed.system_name, annotations_allowed=agreed.provenance_annotations_allowed)
    with console.progress("checking") as update:
        report = repair_root(
            root,
            wanted,
            home=agreed.home,
            workers=workers or os.cpu_count() or 1,
            dry_run=dry_run,
            on_progress=lambda what, done, total: update(
                description=what, completed=done, total=total or None
            ),
        )
    if as_json:
        console.json(report)
    else:
        _show(report, dry_run=dry_run)
    if report.left:
        raise typer.Exit(console.EXIT_FAILED)


def _show(report: RepairReport, *, dry_run: bool) -> None:
    would = "would be " if dry_run else ""
    for path in report.archived:
        console.line(f"{would}filed again  {path}")
    for hour in report.hours:
        console.line(f"{would}rebuilt      {hour}")
    if not (report.archived or report.hours or report.left):
        console.line("nothing is lost")
    for found in report.restored:
        console.line(f"restored     {found}; settle it with `waybill verify --accept {found}`")
    for sentence in report.left:
        console.error(sentence)
