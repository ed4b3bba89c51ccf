"""`waybill repair`: restore what a root has lost."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from waybill.transport import Settings

from .. import console
from ..arguments import JsonObject, Workers, flag
from ..home import agreed_settings, checked_root
from ..options import with_settings

if TYPE_CHECKING:
    from waybill.exporter.repairing import RepairReport


@with_settings("home", "root", "system_name", "provenance_annotations_allowed", "provenance_reasons")
def repair(
    settings: Settings,
    *,
    dry_run: Annotated[
        bool, flag("--dry-run", "Only list what would be restored.", show_default=False)
    ] = False,
    workers: Workers = None,
    as_json: JsonObject = False,
) -> None:
    """Restore what a root has lost, from its archive and the home's journal.

    Verifies the root first. Entries missing from the archive are filed again from the journal. Hours whose
    files were removed, altered, forged or damaged are rebuilt from the archive, and existing rows stay. The
    findings stay open until somebody accepts them with `waybill verify --accept`. You can repeat the command
    at any time. Exit code 1 if something is in neither the archive nor the journal.

    Examples:
      waybill repair --dry-run
      waybill repair --root /data/lineage
      waybill repair --json | jq -r '.left[]'
    """
    from waybill.exporter import Wanted, repair as repair_root
    from waybill.exporter.rebuilding import rule_for

    agreed = agreed_settings(settings)
    root = checked_root(agreed)
    wanted = Wanted(system_name=agreed.system_name, rule=rule_for(agreed, root))
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
        _show(report, root, dry_run=dry_run)
    console.fail_if(report.left)


def _show(report: RepairReport, root: Path, *, dry_run: bool) -> None:
    from waybill.exporter.remedies import accept_command

    would = "would be " if dry_run else ""
    for path in report.archived:
        console.line(f"{would}filed again  {path}")
    for hour in report.hours:
        console.line(f"{would}rebuilt      {hour}")
    if not (report.archived or report.hours or report.left):
        console.line("nothing is lost")
    for found in report.restored:
        console.line(f"restored     {found}; settle it with `{accept_command(root, found)}`")
    for sentence in report.left:
        console.error(sentence)
