"""`waybill age-off`: what is old enough goes."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.cli import console
from waybill.cli.home import as_agreed, existing_journal, existing_root
from waybill.cli.options import with_settings
from waybill.transport import Settings
from waybill.transport.config import days


def _number_of_days(text: str) -> float:
    try:
        return days(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} cannot be; {error}") from None


@with_settings("home", "root", "provenance_age_off_days")
def age_off(
    settings: Settings,
    *,
    system_days: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=DAYS", help="Keep a system's records this long instead; may be repeated."),
    ] = None,
    archive_days: Annotated[
        float | None,
        typer.Option(
            parser=_number_of_days,
            metavar="DAYS",
            help="Let archived entries go, too, that arrived longer ago than this.",
            show_default="they stay",
        ),
    ] = None,
    only_exported: Annotated[
        bool,
        typer.Option("--only-exported", help="Let nothing go that is not exported, as it is, everywhere."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Remove compacted files that are older than the age-off.

    A file goes when its hour ended, and its last record came, longer ago than provenance_age_off_days.
    Records that come for an hour that has gone wait in a file of their own until they are exported.
    Everywhere means each destination that this root was ever exported to. Archived entries go only if
    --archive-days says so: what has gone cannot be rebuilt. With --only-exported they stay until all that
    they came to is exported, and in any case while damaged files are set aside.

    Examples:

    \b
      waybill age-off --only-exported
      waybill age-off --provenance-age-off-days 30 --system-days edge=365 --dry-run
      waybill age-off --only-exported --archive-days 400
    """
    from waybill.exporter import age_off as age_off_root, age_off_archive
    from waybill.exporter.layout import Layout
    from waybill.exporter.retention import AgedOff

    with existing_journal(settings) as journal:
        agreed = as_agreed(settings, journal)
        root = existing_root(settings, journal)
        filed = {journal.node: journal.cursor(Layout.name)} if journal else {}
    done = age_off_root(
        root,
        days=agreed.provenance_age_off_days,
        days_by_system=_days(system_days or []),
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
    said = f"{len(done.removed)} files {'would go' if dry_run else 'went'}, {done.size_bytes} bytes"
    if done.waiting:
        said += (
            f"; {len(done.waiting)} are old enough but wait: `waybill export` first, and see `waybill verify`"
        )
    console.note(said)


def _days(texts: list[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name:
            raise typer.BadParameter(f"{text!r} names no system; give NAME=DAYS", param_hint="--system-days")
        found[name] = _number_of_days(number)
    return found
