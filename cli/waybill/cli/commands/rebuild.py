"""`waybill rebuild`: the provenance files once more, from the stored events."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waybill.cli import console
from waybill.cli.engine import MASTER, Engine, spark_for
from waybill.cli.home import as_agreed, existing_journal
from waybill.cli.options import with_settings
from waybill.cli.time_args import FORMS, moment
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
        list[str] | None,
        typer.Argument(metavar="PLACE", help="Which: a root, paths of files, or a URL."),
    ] = None,
    since: Annotated[
        int | None,
        typer.Option(parser=moment, metavar="WHEN", help=f"Only records that ended then or later: {FORMS}."),
    ] = None,
    until: Annotated[
        int | None, typer.Option(parser=moment, metavar="WHEN", help="Only records that ended before then.")
    ] = None,
    system: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only records of this system; may be repeated."),
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
    master: Annotated[str | None, MASTER] = None,
    staging: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the embedded engine makes the files that go to an object store.",
            show_default="<home>/rebuilds",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the provenance files once more from stored events.

    The rows are those that the live layout has once every run has settled. Everything stored is read, since a
    record may need any event of its run; --since, --until and --system choose among the records. The same
    command goes on where it was cut short. Exit code 1 when something stored could not be read, or
    a damaged file of DIR was set aside.

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

    with existing_journal(settings) as journal:
        agreed = as_agreed(settings, journal)
    wanted = Wanted(
        system_name=agreed.system_name,
        annotations_allowed=agreed.provenance_annotations_allowed,
        since_ms=since,
        until_ms=until,
        systems=frozenset(system or ()),
    )
    root = local_or_url(to)
    opened = open_source(source, places or [], agreed)
    if engine is Engine.SPARK:
        report = _on_spark(opened, root, wanted, master)
    else:
        there = staging or agreed.home / "rebuilds"
        report = _embedded(opened, root, wanted, workers or os.cpu_count() or 1, there.absolute())
    _show(report, root, as_json=as_json)
    if not report.is_whole:
        raise typer.Exit(console.EXIT_FAILED)


def _embedded(source: Source, root: Path | str, wanted: Wanted, workers: int, staging: Path) -> RebuildReport:
    from waybill.exporter import open_destination, rebuild as rebuild_layout
    from waybill.exporter.rebuilding import rebuild_remote

    with console.progress() as bar:
        task = bar.add_task("reading", total=None)

        def on_progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        if isinstance(root, Path):
            return rebuild_layout(source, root, wanted, workers=workers, on_progress=on_progress)
        there = open_destination(root)
        return rebuild_remote(source, there, staging, wanted, workers=workers, on_progress=on_progress)


def _on_spark(source: Source, root: Path | str, wanted: Wanted, master: str | None) -> RebuildReport:
    from waybill.spark import rebuild_on_spark

    with spark_for(master) as spark:
        return rebuild_on_spark(spark, source, root, wanted)


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
