"""`waybill age-off`: remove old files."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.transport import Settings
from waybill.transport.config import days
from waybill.transport.counting import counted

from .. import console
from ..arguments import JsonObject, flag, repeated, valued
from ..home import as_agreed, checked_root, existing_journal
from ..options import with_settings


def _number_of_days(text: str) -> float:
    try:
        return days(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number of days; {error}") from None


@with_settings("home", "root", "provenance_age_off_days")
def age_off(
    settings: Settings,
    *,
    system_days: Annotated[
        list[str] | None,
        repeated("NAME=DAYS", "Keep one system's records this long instead."),
    ] = None,
    archive_days: Annotated[
        float | None,
        valued(
            "DAYS",
            "Also remove archived entries that arrived longer ago than this.",
            parser=_number_of_days,
            show_default="they stay",
        ),
    ] = None,
    only_exported: Annotated[
        bool,
        flag("--only-exported", "Remove only files whose current version is exported to every destination."),
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Only list what would be removed.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Remove compacted files older than the age-off.

    A file is removed once its hour ended, and its last record arrived, longer ago than
    provenance_age_off_days. Records that arrive later for a removed hour wait in a separate file until they
    are exported. With --only-exported, a file must have been exported to every destination that this root was
    ever exported to. Archived entries are removed only with --archive-days, because their records cannot be
    rebuilt afterwards. With --only-exported they stay until all their records are exported, and while a
    damaged file is in quarantine.

    Examples:
      waybill age-off --only-exported
      waybill age-off --provenance-age-off-days 30 --system-days edge=365 --dry-run
      waybill age-off --only-exported --archive-days 400
    """
    from waybill.exporter import age_off as age_off_root, age_off_archive
    from waybill.exporter.layout import Layout
    from waybill.exporter.retention import AgedOff

    with existing_journal(settings, to_read=True) as journal:
        agreed = as_agreed(settings, journal)
        root = checked_root(agreed)
        nodes = [node.name for node in journal.nodes()] if journal else []
        filed = dict.fromkeys(nodes, journal.cursor(Layout.name)) if journal else {}
    done = age_off_root(
        root,
        days=agreed.provenance_age_off_days,
        days_by_system=_days_by_system(system_days or []),
        only_exported=only_exported,
        dry_run=dry_run,
    )
    if archive_days is not None:
        archived = age_off_archive(
            root, days=archive_days, only_exported=only_exported, filed=filed, dry_run=dry_run
        )
        done = AgedOff(
            (*done.removed, *archived.removed),
            done.size_bytes + archived.size_bytes,
            (*done.waiting, *archived.waiting),
        )
    if as_json:
        console.json(done)
        return
    for path in done.removed:
        console.line(path)
    verb = "would be removed" if dry_run else "removed"
    text = f"{counted(len(done.removed), 'file')} {verb}, {counted(done.size_bytes, 'byte')}"
    if waiting := len(done.waiting):
        wait = (
            "1 is old enough but waits for an export"
            if waiting == 1
            else f"{waiting:,} are old enough but wait for an export"
        )
        text += f"; {wait}: `waybill export` first, and see `waybill verify`"
    console.note(text)


def _days_by_system(texts: list[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name:
            raise typer.BadParameter(f"{text!r} names no system; give NAME=DAYS", param_hint="--system-days")
        found[name] = _number_of_days(number)
    return found
