"""`waybill rebuild`: rebuild the provenance files from the stored events."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waybill.transport import Settings
from waybill.transport.counting import counted

from .. import completing, console
from ..arguments import (
    Engine,
    JsonObject,
    Master,
    Since,
    Until,
    Workers,
    argument,
    check_span,
    repeated,
    valued,
)
from ..home import agreed_settings, is_home
from ..options import ORIGIN, with_settings
from ..records import as_plain

if TYPE_CHECKING:
    from waybill.exporter import Source, Wanted
    from waybill.exporter.rebuilding import RebuildReport


@with_settings("home", "root", "system_name", "provenance_annotations_allowed", "provenance_reasons")
def rebuild(
    settings: Settings,
    *,
    source: Annotated[
        str,
        valued(
            "SOURCE",
            "Where events are stored: 'journal', the home's; 'events', the archive of a root; "
            "'jsonl', files of JSON lines; 'marquez', over HTTP; 'marquez-db', its PostgreSQL.",
            "--from",
            autocompletion=completing.sources,
        ),
    ],
    to: Annotated[
        str,
        valued(
            "DIR",
            "Where the files go: a new root, or one to merge into; or s3://bucket/folder, gs://…, az://….",
        ),
    ],
    places: Annotated[
        list[str] | None, argument("PLACE", "The source's location: a root, paths of files, or a URL.")
    ] = None,
    since_ms: Since = None,
    until_ms: Until = None,
    system: Annotated[
        list[str] | None,
        repeated("NAME", "Only records of this system.", autocompletion=completing.systems),
    ] = None,
    workers: Workers = None,
    engine: Annotated[
        Engine, typer.Option(help="'embedded': processes on this machine; 'spark': PySpark, on any master.")
    ] = Engine.EMBEDDED,
    master: Master = None,
    staging: Annotated[
        Path | None,
        valued(
            "DIR",
            "Where the embedded engine prepares files for an object store.",
            show_default="<home>/rebuilds",
        ),
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Rebuild the provenance files from stored events.

    The rows are those that the live layout has once every run has settled. --since, --until and --system
    filter the output only; all input is read, because a record may need any event of its run. If a rebuild is
    interrupted, the same command continues where it stopped. Exit code 1 if some of the input could not be
    read, or if a damaged file of DIR was moved to quarantine.

    Examples:
      waybill rebuild --from journal --to /tmp/again
      waybill rebuild --from events /data/lineage --to /data/again --since 2026-01-01
      waybill rebuild --from events /data/lineage --to /data/again --engine spark --master "local[8]"
      waybill rebuild --from jsonl s3://bucket/events --to s3://bucket/lineage --engine spark
      waybill rebuild --from marquez http://localhost:5000 --to /data/again
      waybill rebuild --from jsonl events.jsonl older/*.jsonl.gz --to /data/again --json | jq .records
    """
    from waybill.exporter import Wanted, open_source
    from waybill.exporter.object_stores import local_or_url
    from waybill.exporter.rebuilding import rule_for

    check_span(since_ms, until_ms)
    root = local_or_url(to)
    stages = isinstance(root, str) and engine is Engine.EMBEDDED and staging is None
    is_of_home = source == "journal" or stages
    if places and not is_of_home and settings.origins["home"] != ORIGIN and not is_home(settings.home):
        agreed = settings  # a home that the environment names, and nobody made, has no say in files
    else:
        agreed = agreed_settings(settings, needed=is_of_home or (False if places else None))
    wanted = Wanted(
        system_name=agreed.system_name,
        rule=rule_for(agreed, local_or_url(places[0]) if places and source == "events" else agreed.root),
        since_ms=since_ms,
        until_ms=until_ms,
        systems=frozenset(system or ()),
    )
    opened = open_source(source, places or [], agreed)
    if engine is Engine.SPARK:
        from waybill.spark import plain_session, rebuild_on_spark

        with plain_session(master) as spark:
            report = rebuild_on_spark(spark, opened, root, wanted)
    else:
        staged = (staging or agreed.home / "rebuilds").absolute()
        report = rebuild_embedded(opened, root, wanted, workers or os.cpu_count() or 1, staged)
    _show(report, root, as_json=as_json)
    console.fail_if(not report.is_whole)


def rebuild_embedded(
    source: Source, root: Path | str, wanted: Wanted, workers: int, staging: Path
) -> RebuildReport:
    """Rebuild with processes on this machine; `staging` is for a root in an object store."""
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
        console.json(as_plain(report))
    else:
        console.line(
            f"{counted(report.entries, 'entry', 'entries')} of {report.source} gave "
            f"{counted(report.records, 'record')} in {counted(len(report.files), 'file')} below {root}, "
            f"in {report.seconds:.1f} s"
        )
        if report.resumed:
            console.line(f"{report.resumed:,} of {counted(report.parts, 'part')} had already been read")
    lacking = [flow.sentence for flow in report.coalesced]
    quarantined = [one.sentence for one in report.aside]
    for sentence in (*report.damaged, *report.failed, *lacking, *quarantined):
        console.error(sentence)
    if report.unreadable:
        console.error(
            f"{counted(report.unreadable, 'entry holds', 'entries hold')} no event and gave no record; "
            f"the first: {report.first_unreadable}"
        )
