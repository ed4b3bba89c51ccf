"""`waybill catalog`: make or bring up to date what questions look up instead of opening every file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from waybill.cli import console
from waybill.cli.arguments import JsonObject
from waybill.cli.home import agreed_settings, check_root_folder, checked_root
from waybill.cli.options import with_settings
from waybill.transport import Settings


@with_settings("home", "root")
def catalog(
    settings: Settings,
    *,
    where: Annotated[
        Path | None,
        typer.Argument(metavar="ROOT", help="The root to catalog.", show_default="the root set"),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make it anew from all files.", show_default=False)
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Make the catalog of a root, or bring it up to date.

    The catalog tells which compacted files have a did, a parent, a file name or an annotation, so that a
    question opens few files instead of all. A runner keeps up the catalog of its own root; use this command
    for a root without one. Files that it does not know yet are opened as before, so an
    answer never lacks them. An interrupted command continues where it stopped. The catalog is derived from
    the files, below provenance/catalog in the root; you can delete it at any time. Exit code 1 if a file
    cannot be read.

    Examples:

    \b
      waybill catalog /mnt/shared/lineage
      waybill catalog --rebuild
    """
    from waybill.lineage.catalog import forget_catalog, keep_catalog

    agreed = agreed_settings(settings, needed=False if where else None)
    root = where or checked_root(agreed)
    check_root_folder(root)
    if rebuild:
        forget_catalog(root)
    with console.progress("reading hours") as update:
        report = keep_catalog(root, on_progress=lambda done, total: update(completed=done, total=total))
    if as_json:
        console.json(report)
    else:
        files = console.counted(report.files, "compacted file")
        console.line(f"{root} has {files} in its catalog, which takes {report.size_bytes / 1e6:,.1f} MB")
    for hour in report.unread:
        console.error(f"a file of hour {hour} cannot be read; run `waybill verify`")
    if report.unread:
        raise typer.Exit(console.EXIT_FAILED)
