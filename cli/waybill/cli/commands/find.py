"""`waybill find`: find files by their records."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from waybill.cli import console, records
from waybill.cli.arguments import JsonLines, Since, Until
from waybill.cli.home import agreed_settings, checked_root, tell_of_poison
from waybill.cli.options import with_settings
from waybill.facets import FinalState, ProvenanceRecord
from waybill.transport import Settings


@with_settings("home", "root")
def find(
    settings: Settings,
    *,
    did: Annotated[str | None, typer.Option(metavar="UUID", help="The file with this identity.")] = None,
    parent: Annotated[str | None, typer.Option(metavar="UUID", help="Files split from this one.")] = None,
    data_source: Annotated[str | None, typer.Option(metavar="NAME", help="Files that came in here.")] = None,
    data_sink: Annotated[str | None, typer.Option(metavar="NAME", help="Files that left here.")] = None,
    system: Annotated[str | None, typer.Option(metavar="NAME", help="Records of this system.")] = None,
    filename: Annotated[
        str | None, typer.Option(metavar="NAME", help="Files of this name; * and ? match any.")
    ] = None,
    state: Annotated[
        FinalState | None, typer.Option(case_sensitive=False, help="Files that ended like this.")
    ] = None,
    annotation: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Files with this annotation; may be repeated."),
    ] = None,
    since_ms: Since = None,
    until_ms: Until = None,
    limit: Annotated[
        int, typer.Option(metavar="COUNT", min=1, help="The most records to show, newest first.")
    ] = 100,
    as_json: JsonLines = False,
) -> None:
    """Find files by where they came from, what was done to them, and where they ended.

    Shows one record for each path that a file took, newest first. Exit code 0 even when nothing is found,
    and 1 when a file could not be read, so that records may be missing. A line on stderr tells of accepted
    entries that are poison, whose records are in no answer.

    Examples:

    \b
      waybill find --state ERROR --since 24h
      waybill find --data-sink warehouse --annotation customer=acme --json | jq .filename
    """
    from waybill.exporter import Query
    from waybill.exporter.query import IncompleteError, PatternError, scan
    from waybill.facets.arrow import from_table

    try:
        query = Query(
            did=did,
            parent_did=parent,
            data_source=data_source,
            data_sink=data_sink,
            system_name=system,
            filename=filename,
            final_state=state,
            annotations=_pairs(annotation or []),
            since_ms=since_ms,
            until_ms=until_ms,
            limit=limit,
        )
    except PatternError as error:
        raise typer.BadParameter(str(error), param_hint="--filename") from None
    root = checked_root(agreed_settings(settings))
    tell_of_poison(settings)
    found: list[ProvenanceRecord] = []
    incomplete: IncompleteError | None = None
    try:
        for table in scan(root, query):
            found += from_table(table)
    except IncompleteError as error:
        incomplete = error
    if as_json:
        for record in found:
            console.json(msgspec.to_builtins(record))
    elif found:
        records.show(found)
    if incomplete:
        raise incomplete
    if not found:
        console.note(f"nothing found below {root}; `waybill flush` makes the latest events visible")


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise typer.BadParameter(f"{key!r} has no value; give KEY=VALUE", param_hint="--annotation")
    return {key: value for key, _, value in pairs}
