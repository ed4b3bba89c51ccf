"""`waybill rebuild`: make the provenance files again from the stored events."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waybill.cli import console
from waybill.cli.arguments import Engine, JsonObject, Master, Since, Until
from waybill.cli.home import agreed_settings
from waybill.cli.options import with_settings
from waybill.transport import Settings

if TYPE_CHECKING:
    from waybill.exporter import Source, Wanted
    from waybill.exporter.rebuilding import RebuildReport


@with_settings("home", "root", "system_name", "provenance_annotations_allowed")
def rebuild(
    settings: Settings,
    *,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Where events are stored: 'journal', that of the home; 'events', the archive of a root; "
            "'jsonl', files of JSON lines; 'marquez', over HTTP; 'marquez-db', its PostgreSQL.",
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="Where the files go: a new root, or one to merge into; or s3://bucket/folder, gs://…, az://….",
        ),
    ],
    places: Annotated[
        list[str] | None, typer.Argument(metavar="PLACE", help="Which: a root, paths of files, or a URL.")
    ] = None,
    since_ms: Since = None,
    until_ms: Until = None,
    system: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only records of this system; may be repeated.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, help="How many processes work.", show_default="one for each core"
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="'embedded': processes of this machine; 'spark': PySpark, on any master.")
    ] = Engine.EMBEDDED,
    master: Master = None,
    staging: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the embedded engine makes the files that go to an object store.",
            show_default="<home>/rebuilds",
        ),
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Make the provenance files again from stored events.

    The rows are those that the live layout has once every run has settled. Everything stored is read, since a
    record may need any event of its run; --since, --until and --system choose among the records. If it is
    interrupted, the same command continues where it stopped. Exit code 1 when something stored could not be
    read, or when a damaged file of DIR was put into quarantine.

    Examples:

    \b
      waybill rebuild --from journal --to /tmp/again
      waybill rebuild --from events /data/lineage --to /data/again --since 2026-01-01
      waybill rebuild --from events /data/lineage --to /data/again --engine spark --master "local[8]"
      waybill rebuild --from jsonl s3://bucket/events --to s3://bucket/lineage --engine spark
      waybill rebuild --from marquez http://localhost:5000 --to /data/again
      waybill rebuild --from jsonl events.jsonl older/*.jsonl.gz --to /data/again --json | jq .records
    """
    from waybill.exporter import Wanted, open_source
    from waybill.exporter.object_stores import local_or_url

    agreed = agreed_settings(settings)
    wanted = Wanted(
        system_name=agreed.system_name,
        annotations_allowed=agreed.provenance_annotations_allowed,
        since_ms=since_ms,
        until_ms=until_ms,
        systems=frozenset(system or ()),
    )
    root = local_or_url(to)
    opened = open_source(source, places or [], agreed)
    if engine is Engine.SPARK:
        from waybill.spark import plain_session, rebuild_on_spark

        with plain_session(master) as spark:
            report = rebuild_on_spark(spark, opened, root, wanted)
    else:
        staged = (staging or agreed.home / "rebuilds").absolute()
        report = _embedded(opened, root, wanted, workers or os.cpu_count() or 1, staged)
    _show(report, root, as_json=as_json)
    if not report.is_whole:
        raise typer.Exit(console.EXIT_FAILED)


def _embedded(source: Source, root: Path | str, wanted: Wanted, workers: int, staging: Path) -> RebuildReport:
    from waybill.exporter import open_destination, rebuild as rebuild_layout
    from waybill.exporter.rebuilding import rebuild_remote

    with console.progress("reading") as update:

        def show(what: str, done: int, total: int) -> None:
            update(description=what, completed=done, total=total)

        if isinstance(root, Path):
            return rebuild_layout(source, root, wanted, workers=workers, on_progress=show)
        destination = open_destination(root)
        return rebuild_remote(source, destination, staging, wanted, workers=workers, on_progress=show)


def _show(report: RebuildReport, root: Path | str, *, as_json: bool) -> None:
    if as_json:
        console.json(report)
    else:
        console.line(
            f"{report.entries:,} entries of {report.source} gave {report.records:,} records in "
            f"{len(report.files):,} files below {root}, in {report.seconds:.1f} s"
        )
        if report.resumed:
            console.line(f"{report.resumed:,} of {report.parts:,} parts had been read before")
    for sentence in (*report.damaged, *report.failed, *(one.sentence for one in report.aside)):
        console.error(sentence)
    if report.unreadable:
        console.error(
            f"{report.unreadable:,} entries hold no event and gave no record; the first: "
            f"{report.first_unreadable}"
        )
