"""`waybill explain`: the proof behind one file's records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from waybill.cli import console, records
from waybill.cli.arguments import JsonObject
from waybill.cli.home import agreed_settings, checked_root
from waybill.cli.options import with_settings
from waybill.transport import Journal, Settings

if TYPE_CHECKING:
    from waybill.exporter.verification import Explanation, StepSeen


@with_settings("home", "root", "system_name", "provenance_annotations_allowed")
def explain(
    settings: Settings,
    *,
    did: Annotated[str, typer.Argument(metavar="DID", help="The file, as `waybill find` shows it.")],
    as_json: JsonObject = False,
) -> None:
    """Show the proof behind a file's records, from the stored events to the rows.

    Shows each event of the archive and the journal that the records came from, where it is stored, and what
    it added; the records that the events fold to; and the file and row of each record. Exit code 1 when
    nothing is known of the file, when the rows are not what the events fold to, or when a file could not be
    read.

    Examples:

    \b
      waybill explain 019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11
      waybill explain "$(waybill find --filename orders.csv --json | jq -r .did | head -1)" --json | jq .rows
    """
    from waybill.exporter import Wanted, explain as explain_file
    from waybill.exporter.incomplete import IncompleteError
    from waybill.exporter.names import EVENTS
    from waybill.exporter.sources import EventsSource, JournalSource

    agreed = agreed_settings(settings)
    root = checked_root(agreed)
    archive = [EventsSource(root)] if (root / EVENTS).is_dir() else []
    journal = [JournalSource(agreed.home)] if Journal.exists(agreed.home) else []
    wanted = Wanted(system_name=agreed.system_name, annotations_allowed=agreed.provenance_annotations_allowed)
    found = explain_file(did, [*archive, *journal], root, wanted)
    if as_json:
        console.json({**msgspec.to_builtins(found), "is_proven": found.is_proven})
    else:
        _show(found, root)
    if found.unread:
        raise IncompleteError(found.unread)
    if not (found.steps or found.rows):
        console.error(f"nothing is known of {did} in the archive, the journal or the layout; check the did")
    elif not found.is_proven:
        console.error(
            "the rows are not what the stored events fold to: a run may not have settled (`waybill flush`), "
            "its events have aged, or a file was altered (`waybill verify`)"
        )
    if not (found.rows and found.is_proven):
        raise typer.Exit(console.EXIT_FAILED)


def _show(found: Explanation, root: Path) -> None:
    run_id = None
    for number, step in enumerate(found.steps, 1):
        if step.run_id is not None and step.run_id != run_id:
            run_id = step.run_id
            console.line((f"run {run_id}", "bold"))
        _show_step(number, step)
    if found.records:
        console.line(("the stored events fold to", "bold"))
        for record in found.records:
            console.line(f"  {records.summary(record)}")
    if found.rows:
        console.line(("the layout holds", "bold"))
    for row in found.rows:
        same = "as folded" if row.as_folded else "not what the events fold to"
        console.line(f"  {root / row.file}, row {row.row}: {same}")
        console.line((f"    {records.summary(row.record)}", "dim"))


def _show_step(number: int, step: StepSeen) -> None:
    what = "records as they are" if step.event_type is None else f"{step.event_type} at {step.event_time}"
    if step.inferred is not None:
        what = f"{what}, inferred: {step.inferred}"
    console.line(f"{number:3}. {what}")
    for place in step.places:
        console.line((f"     {place}", "dim"))
    console.line(f"     gave {', '.join(step.changed) or 'nothing new'}")
    for record in step.records:
        console.line(f"     so far: {records.summary(record)}")
