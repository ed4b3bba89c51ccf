"""`waybill analyzers`: what is read from events beside their own inputs and outputs."""

from __future__ import annotations

from typing import Annotated

import typer

from waybill.transport import Settings
from waybill.transport.counting import counted

from .. import console
from ..arguments import JsonLines
from ..graph import ask_graph
from ..options import with_settings
from ..records import as_plain


@with_settings("home", "root")
def analyzers(
    settings: Settings,
    *,
    used: Annotated[
        bool, typer.Option("--used", help="Show how many edges each told to a home, and the facets'.")
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """List the analyzers: what each reads from events, and how sure it is.

    They find what events say beside their own inputs and outputs. Other packages add theirs; see
    docs/analyzers.md. Exit code 1 if one cannot be loaded.

    Examples:

    \b
      waybill analyzers
      waybill analyzers --used --json
    """
    problems = _show_used(settings, as_json=as_json) if used else _show_known(as_json=as_json)
    for name, problem in problems.items():
        console.error(f"analyzer {name}: {problem}")
    if problems:
        raise typer.Exit(console.EXIT_FAILED)


def _show_known(*, as_json: bool) -> dict[str, str]:
    """List the analyzers that are installed; returns why others cannot be loaded."""
    from waybill.lineage.analyzers import load_analyzers

    loaded, problems = load_analyzers()
    if as_json:
        for one in loaded:
            console.json({"name": one.name, "covers": one.covers, "confidence": one.confidence})
    else:
        rows = [(one.name, f"{one.confidence:g}", one.covers) for one in loaded]
        console.table(("analyzer", "sure", "reads"), rows)
    return problems


def _show_used(settings: Settings, *, as_json: bool) -> dict[str, str]:
    """List who told the edges of a home's graph; returns why some cannot be loaded."""
    from waybill.lineage.graph import OfAnalyzers

    found = ask_graph(settings, OfAnalyzers())
    rows = []
    for use in found.analyzers:
        sure = "" if use.confidence is None else f"{use.confidence:g}"
        rows.append((use.name, sure, f"{use.edges:,}", use.covers))
    if as_json:
        for use in found.analyzers:
            console.json(as_plain(use))
    else:
        console.table(("analyzer", "sure", "edges", "reads"), rows)
    if found.waiting:
        console.note(f"{counted(found.waiting, 'event')} wait to be read")
    for problem, events in found.problems.items():
        console.note(f"in {counted(events, 'event')}: {console.shown(problem)}")
    return found.unloaded
