"""`waybill trace`: the journey of a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from waybill.facets import canonical_did
from waybill.facets.annotations import REASONS
from waybill.facets.record import passage_of
from waybill.transport import NotFoundError, Settings
from waybill.transport.process import leave_numpy_out

from .. import console, records
from ..arguments import FORMS, JsonObject, Zone, argument, flag, is_did, moment, valued
from ..home import open_answers
from ..options import with_settings
from ..pictures import AsDot, AsMermaid, GraphmlFile, SvgFile, draw, rails, refuse_several
from .lineage import lines_of, lines_of_onward

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord
    from waybill.lineage import Journey
    from waybill.lineage.answers import FileAnswers
    from waybill.lineage.drawing import Line
    from waybill.lineage.graph import Dependencies


@with_settings("home", "root", or_exported=True)
def trace(
    settings: Settings,
    exported: str | None,
    *,
    file: Annotated[
        str, argument("DID|FILENAME|DATASET|JOB", "The file's did, or its name; of several, the newest.")
    ],
    up: Annotated[bool, flag("--up", "Only the files that it came from.")] = False,
    down: Annotated[bool, flag("--down", "Only the files that came from it.")] = False,
    depth: Annotated[
        int | None, valued("COUNT", "At most this many generations each way.", min=0, show_default="all")
    ] = None,
    as_of: Annotated[
        str | None, valued("WHEN", f"As it was known then, by what had been received: {FORMS}.")
    ] = None,
    unfold: Annotated[bool, flag("--unfold", "Show each file of a wide split, not their number.")] = False,
    annotations: Annotated[bool, flag("--annotations", "Show the annotations.")] = False,
    tz: Zone = "UTC",
    as_mermaid: AsMermaid = False,
    as_dot: AsDot = False,
    svg_file: SvgFile = None,
    graphml_file: GraphmlFile = None,
    as_json: JsonObject = False,
) -> None:
    """Show the journey of a file: where it came from, what was done to it, and what became of it.

    Shows a tree of all files that it came from and all that came from it, with their paths, states and
    durations. Thirteen files or more that were split from the same file are shown as one line. A joined file
    is below each of the files that it was made of. A file that has not ended is shown with the time at which
    it began and the last transform that it began. "no record" means that a file has aged off, or that it is
    the application of a Spark run. A run that has ended but may still change is left out. Exit code 1 if a
    file could not be read, so records may be missing; 2 if the file is unknown.

    Below the tree are the datasets that the files reached and jobs read, these jobs, what they wrote, and so
    on, as far as events name them. If no file has the name, but a dataset, a column or a job has it, shows
    what `waybill lineage` does, as far as it goes; --depth counts edges then.

    --as-of shows the journey as it was known at an earlier time, from the events received by then. It needs
    these events in the journal or the archive; if some of them are gone, it says so, with exit code 1.

    Examples:
      waybill trace orders.csv
      waybill trace 019b76da-9c00-7c5b-8f7e-0b8f1b5e3a11 --down --annotations
      waybill trace orders.csv --unfold --svg journey.svg
      waybill trace orders.csv --as-of 2026-01-31T12:00:00Z
      waybill trace lake/report
    """
    leave_numpy_out()
    from waybill.lineage import drawing
    from waybill.lineage.graph import OfDependencies

    forms = {"--mermaid": as_mermaid, "--dot": as_dot, "--svg": svg_file, "--graphml": graphml_file}
    refuse_several(forms | {"--json": as_json})
    zone = records.zone_of(tz)
    as_of_ms = None if as_of is None else moment(as_of, zone, "--as-of")
    if exported is not None and as_of is not None:
        raise typer.BadParameter(
            "events are not exported, only records; ask the home or the root", param_hint="--as-of"
        )
    with open_answers(settings, exported) as (answers, _, _):
        follow = functools.partial(
            answers.trace, up=up or not down, down=down or not up, depth=depth, as_of_ms=as_of_ms
        )
        try:
            journey = _journey_of(answers, file, follow)
            _note_dataset(answers, file, journey)
        except NotFoundError:
            edges: int | Literal["all"] = "all" if depth is None else depth
            ways = (edges if up or not down else 0, edges if down or not up else 0)
            question = OfDependencies(file, *ways, as_of_ms)
            with suppress(NotFoundError):
                _show_dependencies(answers.answer(question), file, ways, forms, as_json=as_json)
                return
            raise
    for note in answers.notes:
        console.note(note)
    if as_json:
        console.json(records.as_plain(journey.told()))
        return
    boxes_of = functools.partial(drawing.boxes_of_journey, journey)
    if draw(forms, boxes_of, functools.partial(drawing.graphml_of_journey, journey), unfold=unfold):
        return
    show_journey(journey, zone, unfold=unfold, with_annotations=annotations)
    for line in lines_of_onward(journey.onward, None if unfold else drawing.FOLDED_FROM):
        console.line(line)


def _note_dataset(answers: FileAnswers, name: str, journey: Journey) -> None:
    """Say that the name by which the file was found is that of a dataset or a job, too."""
    from waybill.lineage.graph import OfDependencies

    if journey.did == canonical_did(name):
        return
    with suppress(NotFoundError):
        node = answers.answer(OfDependencies(name, 0, 0)).node
        console.note(f"a {node.kind} has this name, too: `waybill lineage {name}` shows what it depends on")


def _show_dependencies(
    found: Dependencies, name: str, ways: tuple[object, object], forms: Mapping[str, object], *, as_json: bool
) -> None:
    """Show what a dataset or a job depends on, since no file has the name."""
    if asked := [option for option, value in forms.items() if value]:
        raise typer.BadParameter(
            f"{name} is no file; `waybill lineage {name}` draws datasets and jobs", param_hint=asked[0]
        )
    if as_json:
        console.json(records.as_plain(found))
        return
    for line in lines_of(found, name, ways):
        console.line(line)


def _journey_of(answers: FileAnswers, file: str, follow: Callable[[str], Journey]) -> Journey:
    """The journey of a did or, if there is no such did, of the newest file of this name."""
    from waybill.exporter import Query
    from waybill.facets.arrow import from_table

    try:
        return follow(file)
    except NotFoundError:
        query = Query(filename=file)
        named = [
            (record.completed, record.did) for table in answers.tables(query) for record in from_table(table)
        ]
        named += [(begun.last_ms, begun.did) for begun in answers.open_files(query)]
        dids = list(dict.fromkeys(did for _, did in sorted(named, reverse=True)))
        if not dids and is_did(file):
            raise
    if not dids:
        raise NotFoundError(
            f"no file has the did or the name {file!r}; `waybill find --filename '*'` shows the newest"
        )
    if len(dids) > 1:
        console.note(
            f"{len(dids):,} files have this name, and this is the newest; "
            f"`waybill find --filename {file!r}` shows the dids of all"
        )
    return follow(dids[0])


def show_journey(
    journey: Journey, zone: tzinfo | None = UTC, *, unfold: bool = False, with_annotations: bool = False
) -> None:
    """Print the tree of a journey."""
    from waybill.lineage import drawing

    for line in drawing.outline(journey, folded_from=None if unfold else drawing.FOLDED_FROM):
        _show(line, journey, zone, with_annotations=with_annotations)


def _show(line: Line, journey: Journey, zone: tzinfo | None, *, with_annotations: bool) -> None:
    from waybill.lineage.drawing import Fold, last_begun_of, said_of, state_of

    branch, beside = rails(line.is_last)
    state = state_of(line.of)
    style = "dim" if state is None else records.STATE_STYLES[state]
    if isinstance(line.of, Fold):
        console.line(branch, (console.shown(said_of(line.of)), style))
        return
    file = line.of
    weight = f"bold {style}" if file.did == journey.did else style
    name = console.shown(file.filename or file.did)
    if line.is_repeat:
        console.line(branch, (name, weight), ("  see above", "dim"))
        return
    did = file.did if file.records or file.open else "no record"
    console.line(branch, (name, weight), (f"  {did}", "dim"))
    has_below = any(did in journey.files for did in file.children)
    under = f"{beside}{'│  ' if has_below else '   '}"
    for record in file.told:
        for text in _said_of(record, zone, with_annotations=with_annotations):
            console.line((under, ""), (console.shown(text), "dim"))
    if (begun := file.told_open) is not None:
        began = records.instant_of(begun.began_ms, zone)[:19]
        heard = records.instant_of(begun.last_ms, zone)[:19]
        told = f"begun {began}, not ended, last heard of {heard}  {begun.data_source}"
        told += last_begun_of(begun)
        console.line((under, ""), (console.shown(told), "dim"))


def _said_of(record: ProvenanceRecord, zone: tzinfo | None, *, with_annotations: bool) -> list[str]:
    from waybill.lineage.drawing import duration_of

    ended = records.instant_of(record.completed, zone)[:19]
    said = [f"{ended}  {record.final_state}  {passage_of(record)}  {duration_of(record)}"]
    annotations = record.annotations or {}
    if with_annotations:
        said += [f"{key}={value}" for key, value in sorted(annotations.items())]
    else:
        said += [annotations[reason] for reason in REASONS if reason in annotations]
    return said
