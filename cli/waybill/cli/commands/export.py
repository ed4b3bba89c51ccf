"""`waybill export`: the compacted files, somewhere else."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.cli import console
from waybill.cli.home import existing_journal, existing_root
from waybill.cli.options import with_settings
from waybill.transport import Settings


@with_settings("home", "root")
def export(
    settings: Settings,
    *,
    where: Annotated[
        str,
        typer.Argument(
            metavar="DEST", help="A folder, or s3://bucket/folder, gs://…, az://container/folder."
        ),
    ],
    delete_after: Annotated[
        bool, typer.Option("--delete-after", help="Delete here what is safe there, as an age-off does.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be copied; ask nothing over there.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1.0, help="No request to an object store takes longer.")
    ] = 120.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Copy the compacted files that changed to a folder or an object store.

    Files arrive whole or not at all, and a manifest lists their checksums. Rows that came late join the file
    that is there, also when it has left this root. Run it again after any failure, as often as you like: it
    goes on where it was. Exit code 1 when something could not be copied. Credentials come from the
    environment, as AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL.

    Examples:

    \b
      waybill flush && waybill export s3://bucket/lineage
      waybill export /mnt/archive --delete-after --json | jq .failed
    """
    from waybill.exporter import export as export_root, open_destination

    with existing_journal(settings) as journal:
        root = existing_root(settings, journal)
    destination = open_destination(where, timeout_s=timeout)
    with console.progress() as bar:
        task = bar.add_task("exporting", total=None)
        done = export_root(
            root,
            destination,
            delete_after=delete_after,
            dry_run=dry_run,
            on_progress=lambda seen, total: bar.update(task, completed=seen, total=total),
        )
    if as_json:
        console.json(done)
    else:
        for path in done.copied:
            console.line(path)
        for path in done.merged:
            console.line(path, " (merged with what was there)")
        said = f"{len(done.copied)} {'to copy' if dry_run else 'copied'}, {len(done.merged)} merged"
        console.note(
            f"{said}, {done.unchanged} unchanged, {len(done.removed)} deleted here, {done.size_bytes} bytes"
        )
    for path, why in done.failed.items():
        console.error(f"{path}: {why}")
    if done.failed:
        raise typer.Exit(console.EXIT_FAILED)
