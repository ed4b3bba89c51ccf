"""`waybill plan`: what jobs would read and write that have not run yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waybill.facets.json_events import instant
from waybill.transport.clock import SYSTEM_CLOCK

from .. import console
from ..arguments import Dialect, JsonLines, argument, flag, valued
from .lineage import lines_of

if TYPE_CHECKING:
    from waybill.lineage.analyzers import Found


def plan(
    place: Annotated[Path, argument("FILE.sql|DBT_PROJECT", "An SQL file, or the folder of a dbt project.")],
    *,
    dialect: Dialect = None,
    namespace: Annotated[
        str | None,
        valued("URI", "That of the tables, such as postgres://db:5432.", show_default="the dialect"),
    ] = None,
    schema: Annotated[str, valued("NAME", "What a table without it is in, such as shop.public.")] = "",
    columns: Annotated[
        bool, flag("--columns", "Show where each column comes from, and what decides the rows.")
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """Show what SQL or a dbt project would read and write, before it ever runs.

    It needs no home and no database. Each dataset that would be written is shown with those that it would be
    made of. Of a dbt project, the compiled models are read, and the columns from target/catalog.json, which
    `dbt docs generate` writes; a model that cannot be read is drawn from what dbt says that it depends on.
    --json prints OpenLineage job events. Exit code 3 if something could not be read, 1 if nothing could.

    Examples:
      waybill plan job.sql --dialect spark --columns
      waybill plan . --namespace postgres://db:5432
      waybill plan job.sql --dialect snowflake --json
    """
    from waybill.lineage.analyzers import analyze_all, as_job_event, reason_of, unread_of
    from waybill.lineage.planning import read_plan, settle

    questions = read_plan(place, dialect=dialect, namespace=namespace, within=schema)
    found: list[Found] = []
    with console.progress("analyzing", total=len(questions)) as show:
        for question, result in zip(questions, analyze_all(questions), strict=True):
            found += settle(question, result)
            show(advance=1)
    if as_json:
        now = instant(SYSTEM_CLOCK.now_ms())
        for event in found:
            console.json(as_job_event(event, now))
    drawn = _draw(found, columns=columns)
    for line in [] if as_json else drawn[:-1]:  # the last one is empty
        console.line(line)
    unread = [(one["job"]["name"], sentence) for one in found for sentence in unread_of(one)]
    if not (drawn or unread or as_json):
        console.note("it writes nothing that can be told")
    for job, note in ((one["job"]["name"], note) for one in found for note in reason_of(one).split("; ")[1:]):
        if (job, note) not in unread:
            console.note(f"{job}: {note}")
    for job, sentence in unread:
        console.error(f"{job}: {sentence}")
    if unread:
        raise typer.Exit(console.EXIT_INCOMPLETE if drawn else console.EXIT_FAILED)


def _draw(found: list[Found], *, columns: bool) -> list[str]:
    """The lines for each dataset that would be written, with an empty one after each."""
    from waybill.lineage.analyzers import unread_of
    from waybill.lineage.graph import Dependencies, Edge, EdgeKind, Node, NodeKind, Reach, ReachedNode, shown

    def node(named: Found) -> Node:
        return Node(NodeKind.DATASET, named["namespace"], named["name"])

    feeding: dict[Node, set[Edge]] = {}
    lineages: dict[Node, Found] = {}
    unread: dict[Node, list[str]] = {}
    for event in found:
        entries = (event["job"]["facets"].get("lineage") or {}).get("entries") or ()
        told = [(one, one.get("facets") or {}) for one in event.get("outputs") or ()]
        told += [(one, {"lineage": one}) for one in entries if one["type"] == "DATASET"]
        for one, facets in told:
            everything = event.get("inputs", []) if "columnLineage" in facets else []
            sources = facets.get("lineage", {"inputs": everything})["inputs"]
            edges = {Edge(node(source), EdgeKind.FEED, node(one)) for source in sources}
            feeding.setdefault(node(one), set()).update(edges)
            unread[node(one)] = unread_of(event)
            if "columnLineage" in facets:
                lineages[node(one)] = facets["columnLineage"]
    lines: list[str] = []
    for target, edges in feeding.items():
        reached = tuple(ReachedNode(1, edge.source) for edge in sorted(edges))
        upstream = Reach(reached, tuple(sorted(edges)))
        lines += lines_of(Dependencies(target, upstream, Reach((), ())), shown(target), (1, 0))
        if unread[target]:
            lines += ["", "Not read:", *(f"  {console.shown(sentence)}" for sentence in unread[target])]
        if columns:
            lines += _columns(lineages.get(target) or {})
        lines.append("")
    return lines


def _columns(lineage: Found) -> Iterator[str]:
    from waybill.facets.event import dataset_text

    def said(fields: list[Found]) -> list[str]:
        return [
            f"{dataset_text(one['namespace'], one['name'])}.{one['field']}"
            f" ({', '.join(how['subtype'] for how in one['transformations'])})"
            for one in fields
        ]

    fields = lineage.get("fields") or {}
    named = list[str]()
    for name, one in fields.items():
        told = [*said(one["inputFields"]), one.get("transformationDescription")]
        named.append(f"{name}: {', '.join(filter(None, told)) or 'new'}")
    for title, some in (("Columns", named), ("Rows", said(lineage.get("dataset") or []))):
        yield from ("", f"{title}:")
        marks = [*["├─"] * (len(some) - 1), "└─"]
        yield from (f"  {mark} {console.shown(one)}" for mark, one in zip(marks, some, strict=False))
        yield from () if some else ("  none that can be told",)
