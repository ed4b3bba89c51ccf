"""`waybill impact`: what a change of a dataset, a column or a job reaches."""

from __future__ import annotations

from waybill.transport import Settings

from ..arguments import Csv, JsonObject
from ..graph import NodeName, ask_graph, show_answer
from ..options import with_settings


@with_settings("home", "root")
def impact(settings: Settings, *, name: NodeName, as_json: JsonObject = False, as_csv: Csv = False) -> None:
    """Show what a change of a dataset, a column or a job reaches, and whom to ask about it.

    Lists every dataset and job downstream, the nearest first: how many edges away it is, its owners (of the
    facet ownership), its tier (of the tag with the key tier), how a job ran last, and which columns of a
    dataset are reached. Of a dataset, all its columns count. Of a column, only what comes from it counts.
    "maybe" marks what comes from a dataset that events name among the inputs, and that the analyzers have not
    found in the job's text; and a job that reads such a dataset and tells nothing of columns. Exit code 2 if
    nothing has the name, or several have it.

    Examples:
      waybill impact s3://lake/orders
      waybill impact orders.total --csv
      waybill impact orders --json | jq -r '.nodes[].owners[]?' | sort -u
    """
    from waybill.lineage.graph import IMPACT_COLUMNS, OfImpact, shown

    found = ask_graph(settings, OfImpact(name))
    nothing = f"nothing is known that comes from {shown(found.node)}"
    show_answer(found, IMPACT_COLUMNS, found.rows(), nothing=nothing, as_json=as_json, as_csv=as_csv)
