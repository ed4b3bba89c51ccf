"""`waybill compact`: merge a root's raw files into one file for each system and hour."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from waybill.transport import Settings

from .. import console
from ..arguments import Engine, JsonObject, Master, argument
from ..home import agreed_settings, check_root_folder, checked_root
from ..options import with_settings


@with_settings("home", "root")
def compact(
    settings: Settings,
    *,
    where: Annotated[
        str | None,
        argument(
            "ROOT", "The root to compact, or s3://bucket/folder, gs://…, az://….", show_default="the root set"
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="'embedded': this process; 'spark': PySpark, on any master.")
    ] = Engine.EMBEDDED,
    master: Master = None,
    as_json: JsonObject = False,
) -> None:
    """Compact every raw file of a root, including the current hour's.

    A runner compacts its own root. Use this command for a root without a runner, such as the raw files of
    many hosts in an object store; add --engine spark if there are too many for one machine. On a disk, only
    one process at a time compacts a root, and the others wait. In an object store, hours are merged with
    conditional puts. A damaged file is moved to quarantine below provenance/damaged, and a file that cannot
    be read or written is reported. All other files are still compacted, and the exit code is 1.

    Examples:
      waybill compact /mnt/shared/lineage
      waybill compact /mnt/shared/lineage --engine spark --master spark://head:7077
      waybill compact s3://bucket/lineage --engine spark
    """
    from waybill.exporter import Compactor
    from waybill.exporter.compaction import compact_remote
    from waybill.exporter.object_stores import local_or_url

    agreed = agreed_settings(settings, needed=False if where else None)
    root = local_or_url(where) if where else checked_root(agreed)
    if where and isinstance(root, Path):
        check_root_folder(root)
    if engine is Engine.SPARK:
        from waybill.spark import compact_on_spark, plain_session

        with plain_session(master) as spark:
            report = compact_on_spark(spark, root)
    else:
        report = compact_remote(root) if isinstance(root, str) else Compactor(root).compact()
    unreadable, failed = [*report.unreadable.values()], [*report.failed.values()]
    told = {"files": report.published, "aside": report.aside, "unreadable": unreadable, "failed": failed}
    console.result(told, (f"{root}/{file}" for file in report.published), as_json=as_json)
    console.fail_for([*(one.sentence for one in report.aside), *unreadable, *failed])
    if not (report.published or as_json):
        console.note(f"nothing to compact: {root} has no raw files left")
