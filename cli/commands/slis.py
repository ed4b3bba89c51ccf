"""`waybill slis`: the service levels of lineage, and whether their objectives are met."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from waybill.transport import Journal, Settings

from .. import console
from ..arguments import Csv, JsonObject, flag, valued
from ..graph import show_answer
from ..home import open_graph
from ..options import with_settings

if TYPE_CHECKING:
    from waybill.lineage.levels import Level, Levels

_COLUMNS: Final = ("level", "tier", "value", "objective", "met", "budget left", "burn 1h", "6h", "3d", "")
_WINDOWS: Final = ("1h", "6h", "3d")
_BOUNDS: Final = {"at_least": "≥", "at_most": "≤"}
_WORDS: Final = {True: "yes", False: "no", None: ""}


@with_settings("home", "root", "slis")
def slis(
    settings: Settings,
    *,
    tier: Annotated[str | None, valued("TIER", "Only the levels of datasets of this tier.")] = None,
    record: Annotated[
        bool, flag("--record", "Add to the history, if 5 minutes have passed and no collector does.")
    ] = False,
    as_json: JsonObject = False,
    as_csv: Csv = False,
) -> None:
    """Show the service levels of lineage, and whether their objectives are met.

    Coverage, freshness, completeness, accuracy and missing provenance are of datasets, by tier; ingestion
    lag, query latency, impact analysis, error rate and unauthorised access of the whole home. A level of
    which nothing is known is unknown, with the reason. The file slis.yaml in the home, or the one that --slis
    names, sets tiers and objectives, and says which datasets there are: see docs/service-levels.md. A
    collector records the levels every 5 minutes, for error budgets and burn rates; where none runs, call
    this with --record. Exit code 1 if an objective is missed.

    Examples:
      waybill slis
      waybill slis --tier critical --json | jq -r '.breaches[].dataset'
    """
    from waybill.lineage.levels import TIERS, measure, read_plan
    from waybill.pipelines import YamlFileError

    if tier is not None and tier not in TIERS:
        raise typer.BadParameter(f"give one of {', '.join(TIERS)}", param_hint="--tier")
    try:
        plan = read_plan(settings)
    except YamlFileError as error:
        console.error(str(error))
        raise typer.Exit(console.EXIT_USAGE) from None
    with open_graph(settings) as (answers, journal), contextlib.ExitStack() as at_end:
        history = at_end.enter_context(contextlib.closing(Journal(settings.home))) if record else None
        found = measure(answers, journal, plan, history=history)
    if tier is not None:
        found = replace(
            found,
            levels=tuple(level for level in found.levels if level.tier == tier),
            breaches=tuple(one for one in found.breaches if one.tier == tier),
        )
    for note in answers.notes:
        console.note(note)
    show_answer(found, _COLUMNS, map(_row, found.levels), nothing="", as_json=as_json, as_csv=as_csv)
    if not (as_json or as_csv):
        _show_breaches(found)
    console.fail_if(found.missed)


def _row(level: Level) -> tuple[str, ...]:
    rates = (f"{level.burn_rates[window]:.2f}" if window in level.burn_rates else "" for window in _WINDOWS)
    left = "" if level.budget_left is None else f"{level.budget_left:.2%}"
    promised = "" if level.objective is None else f"{_BOUNDS[level.bound]} {level.text(level.objective)}"
    value, met = level.text(level.value) or "unknown", _WORDS[level.is_met]
    met = "not known" if level.is_met is None and promised else met
    words = (level.sli.replace("_", " "), level.tier, value, promised, met, left)
    return *words, *rates, level.unknown or level.note


def _show_breaches(found: Levels) -> None:
    for one in found.breaches:
        of = f" of {one.owner}" if one.owner else ""
        missed = f": {one.missed}" if one.missed else ""
        console.note(f"{one.sli.replace('_', ' ')}: {one.tier}: {one.namespace} {one.dataset}{of}{missed}")
    if found.breaches_left_out:
        console.note(f"{found.breaches_left_out:,} more datasets are in breach")
    for window in found.maintenance:
        console.note(f"maintenance until {window.ends.isoformat()}: {window.why}")
