"""`waybill export`: copy the compacted files to another place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from waybill.transport import NotFoundError, Settings
from waybill.transport.counting import counted

from .. import console
from ..arguments import JsonObject, argument, flag, seconds
from ..home import agreed_settings, checked_root
from ..options import with_settings

if TYPE_CHECKING:
    from waybill.exporter.exporting import Exported


@with_settings("home", "root")
def export(
    settings: Settings,
    *,
    where: Annotated[
        str, argument("DEST", "A folder, or s3://bucket/folder, gs://…, az://container/folder.")
    ],
    create: Annotated[bool, flag("--create", "Create the folder DEST if it does not exist.")] = False,
    delete_after: Annotated[
        bool,
        flag(
            "--delete-after",
            "After copying, delete files here that are safe at the destination, as an age-off does.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", "Only list what would be copied, without contacting the destination.")
    ] = False,
    timeout_s: Annotated[
        float, seconds("--timeout", "Time limit for each request to an object store.", 1.0)
    ] = 120.0,
    as_json: JsonObject = False,
) -> None:
    """Copy new and changed compacted files to a folder or an object store.

    A file arrives whole or not at all, and a manifest lists the checksums. Late rows are merged into the file
    at the destination, even if it has already left this root. After a failure, run the command again, as
    often as you like: it continues where it stopped. A destination folder must exist, so that an unmounted
    disk is noticed; --create makes it. Exit code 1 if something could not be copied. Credentials come from
    the environment, for example AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL.

    Examples:
      waybill flush && waybill export s3://bucket/lineage
      waybill export /mnt/archive --delete-after --json | jq .failed
    """
    from waybill.exporter import export as export_root, open_destination
    from waybill.exporter.object_stores import local_or_url

    place = local_or_url(where)
    if isinstance(place, Path) and not (create or place.is_dir()):
        raise NotFoundError(f"there is no folder {place}; mount it, or create it with --create")
    root = checked_root(agreed_settings(settings))
    destination = open_destination(where, timeout_s=timeout_s)
    with console.progress("exporting") as show:
        done = export_root(
            root,
            destination,
            delete_after=delete_after,
            dry_run=dry_run,
            on_progress=lambda seen, total: show(completed=seen, total=total),
        )
    if as_json:
        console.json(done)
    else:
        for path in done.copied:
            console.line(path)
        for path in done.merged:
            console.line(path, " (merged with the file there)")
        console.note(_summary_of(done, root, dry_run=dry_run))
    console.fail_for(f"{path}: {why}" for path, why in done.failed.items())


def _summary_of(done: Exported, root: Path, *, dry_run: bool) -> str:
    if not (done.copied or done.merged or done.unchanged or done.failed):
        return f"nothing to export: no files are compacted below {root} yet; run `waybill flush`"
    copied = f"{counted(len(done.copied), 'file')} {'to copy' if dry_run else 'copied'}"
    others = f"{len(done.merged):,} merged, {done.unchanged:,} unchanged, {len(done.removed):,} deleted here"
    return f"{copied}, {others}, {counted(done.size_bytes, 'byte')}"
