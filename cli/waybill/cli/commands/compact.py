"""`waybill compact`: the raw files of a root become one file for each system and hour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waybill.cli import console
from waybill.cli.engine import MASTER, Engine, spark_for
from waybill.cli.home import existing_journal, existing_root
from waybill.cli.options import with_settings
from waybill.transport import Settings

if TYPE_CHECKING:
    from waybill.exporter.compaction import CompactionReport


@with_settings("home", "root")
def compact(
    settings: Settings,
    *,
    where: Annotated[
        str | None,
        typer.Argument(
            metavar="ROOT",
            help="The root to compact, or s3://bucket/folder, gs://…, az://….",
            show_default="the root set",
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="'embedded': this process; 'spark': PySpark, on any master.")
    ] = Engine.EMBEDDED,
    master: Annotated[str | None, MASTER] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compact every raw file of a root, the current hour's too.

    A runner compacts its own root by itself; this is for a root that none looks after, such as raw files of
    many hosts in an object store, and with --engine spark for more of them than one machine should work on.
    Whatever compacts a root on a disk waits for its turn; in an object store hours are merged by conditional
    puts. A damaged file is set aside below provenance/damaged, one that cannot be read or written now is
    told; neither stops anything else, and the exit code is 1.

    Examples:

    \b
      waybill compact /mnt/shared/lineage
      waybill compact /mnt/shared/lineage --engine spark --master spark://head:7077
      waybill compact s3://bucket/lineage --engine spark
    """
    from waybill.exporter.object_stores import local_or_url

    with existing_journal(settings) as journal:
        root = local_or_url(where) if where else existing_root(settings, journal)
    if where and isinstance(root, Path) and not root.is_dir():
        raise typer.BadParameter(f"there is no folder {root}; give the path of a root", param_hint="ROOT")
    report = _on_spark(root, master) if engine is Engine.SPARK else _embedded(root)
    if as_json:
        told = {"unreadable": [*report.unreadable.values()], "failed": [*report.failed.values()]}
        console.json({"files": report.published, "aside": report.aside, **told})
    else:
        for file in report.published:
            console.line(f"{root}/{file}")
    asides = (one.sentence for one in report.aside)
    for sentence in (*asides, *report.unreadable.values(), *report.failed.values()):
        console.error(sentence)
    if report.aside or report.unreadable or report.failed:
        raise typer.Exit(console.EXIT_FAILED)


def _embedded(root: Path | str) -> CompactionReport:
    from waybill.exporter import Compactor
    from waybill.exporter.compaction import compact_remote

    return compact_remote(root) if isinstance(root, str) else Compactor(root).compact()


def _on_spark(root: Path | str, master: str | None) -> CompactionReport:
    from waybill.spark import compact_on_spark

    with spark_for(master) as spark:
        return compact_on_spark(spark, root)
