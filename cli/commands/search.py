"""`waybill search`: datasets and jobs by words."""

from __future__ import annotations

from typing import Annotated

from waybill.transport import Settings

from .. import console
from ..arguments import Csv, JsonObject, argument, valued
from ..graph import ask_graph, show_answer
from ..options import with_settings


@with_settings("home", "root")
def search(
    settings: Settings,
    *,
    text: Annotated[list[str], argument("TEXT", "Words; each may be only the beginning of one.")],
    limit: Annotated[int, valued("COUNT", "Show at most so many.", min=1, max=1_000)] = 20,
    as_json: JsonObject = False,
    as_csv: Csv = False,
) -> None:
    """Find datasets and jobs by words of their names, columns, tags, owners and descriptions.

    All words have to be there, each as the beginning of one: `ord dai` finds s3://lake/daily/orders. What is
    between letters and digits separates words; accents and upper case do not matter. The best match comes
    first.

    Examples:
      waybill search daily orders
      waybill search team:sales gold --json | jq -r '.nodes[].node.name'
    """
    from waybill.lineage.graph import OfSearch

    found = ask_graph(settings, OfSearch(" ".join(text), limit))
    columns = ("kind", "name", "columns", "tags", "owners", "description")
    rows = (
        (one.node.kind, one.node, one.columns, one.tags, one.owners, one.description) for one in found.nodes
    )
    nothing = "nothing has all these words"
    show_answer(found, columns, rows, nothing=nothing, as_json=as_json, as_csv=as_csv)
    if not found.is_all:
        console.note(f"more than {found.matches:,} have these words, too many to rank; give more words")
    elif found.matches > len(found.nodes):
        console.note(f"these are {len(found.nodes):,} of {found.matches:,}; more with --limit")
