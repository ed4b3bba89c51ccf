"""`waybill export`: copy the compacted files somewhere else."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.cli import console
from waybill.cli.arguments import JsonObject
from waybill.cli.home import agreed_settings, checked_root
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
        bool,
        typer.Option(
            "--delete-after", help="Delete here what is safe at the destination, as an age-off does."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only list what would be copied, without asking the destination."),
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=1.0, help="The limit of each request to an object store."
        ),
    ] = 120.0,
    as_json: JsonObject = False,
) -> None:
    """Copy the compacted files that changed to a folder or an object store.

    Files arrive whole or not at all, and a manifest lists their checksums. Rows that came late are merged
    into the file at the destination, even if it is no longer in this root. After any failure run the command
    again, as often as you like: it continues where it stopped. Exit code 1 when something could not be
    copied. Credentials come from the environment, as AWS_ACCESS_KEY_ID, AWS_REGION and AWS_ENDPOINT_URL.

    Examples:

    \b
      waybill flush && waybill export s3://bucket/lineage
      waybill export /mnt/archive --delete-after --json | jq .failed
    """
    from waybill.exporter import export as export_root, open_destination

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
            console.line(path, " (merged with what was there)")
        copied = f"{len(done.copied)} {'to copy' if dry_run else 'copied'}, {len(done.merged)} merged"
        console.note(
            f"{copied}, {done.unchanged} unchanged, {len(done.removed)} deleted here, {done.size_bytes} bytes"
        )
    for path, why in done.failed.items():
        console.error(f"{path}: {why}")
    if done.failed:
        raise typer.Exit(console.EXIT_FAILED)
