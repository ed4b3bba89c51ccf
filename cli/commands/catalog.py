"""`waybill catalog`: make or bring up to date what questions look up instead of opening every file."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from waybill.exporter.object_stores import is_url
from waybill.transport import Settings

from .. import console
from ..arguments import JsonObject
from ..home import agreed_settings, check_home, check_root_folder, checked_root
from ..options import with_settings


@with_settings("home", "root", or_exported=True)
def catalog(
    settings: Settings,
    exported: str | None,
    *,
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="ROOT",
            help="The root to catalog, or the URL of a destination of exports.",
            show_default="the root set",
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make it anew from all files.", show_default=False)
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Make the catalog of a root, or bring it up to date.

    The catalog tells which compacted files have a did, a parent, a file name or an annotation, so that a
    question opens few files instead of all. A runner keeps up the catalog of its own root; use this command
    for a root without one, and before the first question about years of exported files. Files that it does
    not know yet are opened as before, so an answer never lacks them. An interrupted command continues where
    it stopped. The catalog is derived from the files, below provenance/catalog in the root, or of exported
    files in the home or in your cache; you can delete it at any time. Exit code 1 if a file cannot be read.

    Examples:

    \b
      waybill catalog /mnt/shared/lineage
      waybill catalog --rebuild
      waybill catalog s3://bucket/lineage
    """
    from waybill.lineage.catalog import forget_catalog, keep_catalog, open_exported

    url = where if where is not None and is_url(where) else exported
    if url is not None:
        check_home(settings, needed=False)
        destination = open_exported(url, settings.home)
        root, name, unit, keep = destination.root, destination.name, "files", destination.keep
    else:
        agreed = agreed_settings(settings, needed=False if where else None)
        root = Path(where) if where else checked_root(agreed)
        name, unit, keep = str(root), "hours", functools.partial(keep_catalog, root)
        check_root_folder(root)
    if rebuild:
        forget_catalog(root)
    with console.progress(f"reading {unit}") as update:
        report = keep(on_progress=lambda done, total: update(completed=done, total=total))
    if as_json:
        console.json(report)
    else:
        files = console.counted(report.files, "compacted file")
        console.line(f"{name} has {files} in its catalog, which takes {report.size_bytes / 1e6:,.1f} MB")
    for hour in report.unread:
        console.error(f"a file of hour {hour} cannot be read; run `waybill verify`")
    if report.unread:
        raise typer.Exit(console.EXIT_FAILED)
