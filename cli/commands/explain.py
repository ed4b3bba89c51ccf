"""`waybill explain`: the proof behind one file's records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from waybill.transport import NotFoundError, Settings
from waybill.transport.config import apply_command

from .. import console, records
from ..arguments import JsonObject, argument, check_did
from ..home import as_agreed, open_answers
from ..options import with_settings

if TYPE_CHECKING:
    from waybill.exporter.verification import Explanation, StepSeen
    from waybill.lineage.index import JobRun


@with_settings("home", "root", "system_name", "provenance_annotations_allowed", "provenance_reasons")
def explain(
    settings: Settings,
    *,
    did: Annotated[str, argument("DID", "The file's did, as `waybill find` shows it.")],
    as_json: JsonObject = False,
) -> None:
    """Show the proof behind a file's records, from the stored events to the rows.

    Shows each event of the archive and the journal that the records came from, where it is stored, and what
    it added; all files that it came from; the records that the events fold to; and the file and row of each
    record. Exit code 1 if rows are missing or differ from the folded events, or if a file could not be read;
    2 if the file is unknown. A file that has not ended has no rows yet, and none are written while
    provenance_enabled is off: only the events are shown then.

    Examples:
      waybill explain 019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11
      waybill explain "$(waybill find --filename orders.csv --json | jq -r .did | head -1)" --json | jq .rows
    """
    from waybill.exporter.incomplete import IncompleteError

    with open_answers(settings, None) as (answers, _, journal):
        agreed = as_agreed(settings, journal)
        found = answers.explain(did)
        runs = answers.job_runs(found.records)
    if as_json:
        console.json({**records.as_plain(found), "is_proven": found.is_proven})
    else:
        _show(found, agreed.root, runs)
    if found.unread:
        raise IncompleteError(found.unread)
    if not (found.steps or found.rows):
        check_did(did, "DID")
        raise NotFoundError(
            f"the archive, the journal and the layout have nothing about {did}; check the did"
        )
    if not found.rows and (why := _why_nothing_is_filed(found, agreed)) is not None:
        console.note(f"there is no row to compare this with: {why}")
        return
    if not found.rows:
        console.error("the layout has no row for it yet: run `waybill flush`, then `waybill verify`")
    elif not found.is_proven:
        console.error(
            "the rows differ from what the stored events fold to: a run may not have settled "
            "(`waybill flush`), its events may have aged off, or a file was altered (`waybill verify`)"
        )
    console.fail_if(not found.is_proven)


def _why_nothing_is_filed(found: Explanation, agreed: Settings) -> str | None:
    """The reason why there is no row; None if there should be one."""
    if not found.records:
        return "it has not ended"
    if agreed.provenance_enabled:
        return None
    turned_on = apply_command(agreed.home, {"provenance_enabled": True})
    return f"provenance_enabled is off; to turn it on: `{turned_on}`"


def _show(found: Explanation, root: Path, runs: Mapping[str, JobRun]) -> None:
    from waybill.lineage.index import shown_as

    namespaces = {(step.run_id, step.namespace) for step in found.steps}
    run = None
    for number, step in enumerate(found.steps, 1):
        if step.run_id is not None and (step.run_id, step.namespace) != run:
            run = (step.run_id, step.namespace)
            # One run id in two job namespaces is two runs.
            is_shared = sum(run_id == step.run_id for run_id, _ in namespaces) > 1
            of_job = f" of {console.shown(step.namespace or '')}" if is_shared else ""
            console.line((f"run {step.run_id}{of_job}", "bold"))
        _show_step(number, step)
    if found.parents:
        console.line(("it came from", "bold"))
    for parent in found.parents:
        console.line(f"  {console.shown(parent)}")
    if found.records:
        console.line(("the stored events fold to", "bold"))
        for record in shown_as(found.records, runs):
            console.line(f"  {records.summary(record)}")
    if found.rows:
        console.line(("the layout holds", "bold"))
    for row in found.rows:
        same = "as folded" if row.as_folded else "differs from the folded events"
        console.line(f"  {root / row.file}, row {row.row}: {same}")
        console.line((f"    {records.summary(*shown_as([row.record], runs))}", "dim"))


def _show_step(number: int, step: StepSeen) -> None:
    what = "complete records" if step.event_type is None else f"{step.event_type} at {step.event_time}"
    if step.inferred is not None:
        what = f"{what}, inferred: {step.inferred}"
    console.line(f"{number:3}. {what}")
    for place in step.places:
        console.line((f"     {place}", "dim"))
    console.line(f"     gave {', '.join(step.changed) or 'nothing new'}")
    for record in step.records:
        console.line(f"     so far: {records.summary(record)}")
