"""`waybill origins`: where the values of a column come from."""

from __future__ import annotations

from typing import Annotated

from waybill.transport import Settings

from .. import console
from ..arguments import JsonObject, argument
from ..graph import ask_graph, show_answer, show_sql
from ..options import with_settings


@with_settings("home", "root")
def origins(
    settings: Settings,
    *,
    column: Annotated[str, argument("DATASET.COLUMN", "The dataset's name, a dot, and the column's.")],
    as_json: JsonObject = False,
) -> None:
    """Show where the values of a column come from, step by step.

    The steps go back to the columns that come from nothing that is known. Each has the job that does it, and
    how: direct, the values come from there; indirect, only the choice or the order of the rows does, as in a
    filter or a join; masked, the values are hidden on the way; a guess, only the names are the same. The SQL
    of the jobs follows, where their events have it. Exit code 2 if no column has the name, or several have
    it.

    Examples:
      waybill origins s3://lake/orders.total
      waybill origins orders.total --json | jq -r '.ends[] | .name + "." + .column'
    """
    from waybill.lineage.graph import OfOrigins, shown

    found = ask_graph(settings, OfOrigins(column))
    columns = ("column", "comes from", "how", "transformations", "job", "")
    rows = (
        (
            *(step.target, step.source),
            step.how + ", masked" * step.is_masked + ", a guess" * step.is_guess,
            *(step.transformations, step.job, "end" if step.source in found.ends else ""),
        )
        for step in found.steps
    )
    nothing = f"nothing is known of where {shown(found.column)} comes from"
    show_answer(found, columns, rows, nothing=nothing, as_json=as_json)
    is_direct = any(step.target == found.column and step.how == "direct" for step in found.steps)
    if found.steps and not is_direct and not as_json:
        console.note("no column is known that its values come from")
    if found.maybe and not as_json:
        console.note(f"maybe from {', '.join(console.shown(shown(one)) for one in found.maybe)}, too")
    for one in () if as_json else found.texts:
        console.line()
        show_sql(shown(one.job), one.sql.splitlines())
