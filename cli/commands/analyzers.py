"""`waybill analyzers`: what is read from events beside their own inputs and outputs."""

from __future__ import annotations

from typing import Annotated

from waybill.transport import Settings
from waybill.transport.counting import counted

from .. import console
from ..arguments import JsonLines, flag
from ..graph import ask_graph
from ..options import with_settings
from ..records import as_plain


@with_settings("home", "root")
def analyzers(
    settings: Settings,
    *,
    used: Annotated[
        bool, flag("--used", "Show how many edges each told to a home, and the facets'.")
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """List the analyzers: what each reads from events, and how sure it is.

    They find what events say beside their own inputs and outputs. Other packages add theirs; see
    docs/analyzers.md. Exit code 1 if one cannot be loaded.

    Examples:
      waybill analyzers
      waybill analyzers --used --json
    """
    if used:
        from waybill.lineage.graph import OfAnalyzers

        answer = ask_graph(settings, OfAnalyzers())
        problems, listed = answer.unloaded, [as_plain(one) for one in answer.analyzers]
        notes = [f"{counted(answer.waiting, 'event')} wait to be read"] if answer.waiting else []
        notes += [f"in {counted(one.events, 'event')}: {one.problem}" for one in answer.problems]
    else:
        from waybill.lineage.analyzers import load_analyzers

        loaded, problems = load_analyzers()
        listed = [{"name": one.name, "covers": one.covers, "confidence": one.confidence} for one in loaded]
        notes = []
    columns = ["name", "confidence", *(["edges"] if used else []), "covers"]
    if as_json:
        for one in listed:
            console.json(one)
    else:
        headings = {"name": "analyzer", "confidence": "sure", "edges": "edges", "covers": "reads"}
        rows = [[_cell(one[column]) for column in columns] for one in listed]
        console.table([headings[column] for column in columns], rows)
    for note in notes:
        console.note(console.shown(note))
    console.fail_for(f"analyzer {name}: {problem}" for name, problem in problems.items())


def _cell(value: str | float | None) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else value or ""
