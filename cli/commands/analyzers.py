"""`waybill analyzers`: what is read from events beside their own inputs and outputs."""

from __future__ import annotations

import typer

from .. import console
from ..arguments import JsonLines


def analyzers(*, as_json: JsonLines = False) -> None:
    """List the analyzers: what each reads from events, and how sure it is.

    They find what events say beside their own inputs and outputs. Other packages add theirs; see
    docs/analyzers.md. Exit code 1 if one cannot be loaded.

    Examples:

    \b
      waybill analyzers
      waybill analyzers --json
    """
    from waybill.lineage.analyzers import load_analyzers

    loaded, problems = load_analyzers()
    if as_json:
        for one in loaded:
            console.json({"name": one.name, "covers": one.covers, "confidence": one.confidence})
    else:
        rows = [(one.name, f"{one.confidence:g}", one.covers) for one in loaded]
        console.table(("analyzer", "sure", "reads"), rows)
    for name, problem in problems.items():
        console.error(f"analyzer {name}: {problem}")
    if problems:
        raise typer.Exit(console.EXIT_FAILED)
