"""`waybill lineage`: what a dataset or a job depends on, and what depends on it."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from waybill.facets.json_events import instant
from waybill.lineage.index import INDEX
from waybill.transport import NotFoundError, Settings, WaybillError
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.counting import counted, duration_text

from .. import console
from ..arguments import FORMS, JsonObject, flag, moment, valued
from ..graph import NodeName, ask_graph
from ..home import flush_with_progress
from ..options import with_settings
from ..pictures import STDOUT, AsDot, AsMermaid, GraphmlFile, SvgFile, draw, rails, refuse_several, write
from ..records import as_plain, iso
from .flush import can_flush

if TYPE_CHECKING:
    from waybill.lineage.graph import Dependencies, Edge, Graph, LastRun, Node, Onward

_RULE: Final = "━" * 39
_DIGITS_MAX: Final = 9
_REFRESH_S: Final = 60.0
_POLL_S: Final = 0.2
_RELATED_MAX: Final = 20
"""So many jobs, owners or versions are listed in one block."""


@with_settings("home", "root")
def lineage(
    settings: Settings,
    *,
    name: NodeName,
    up: Annotated[str, valued("EDGES", "Follow so many edges upstream, or all.")] = "1",
    down: Annotated[str, valued("EDGES", "Follow so many edges downstream, or all.")] = "1",
    as_of: Annotated[
        str | None, valued("WHEN", f"Leave out what events told first after this time: {FORMS}.")
    ] = None,
    columns: Annotated[
        bool, flag("--columns", "Show the columns of each dataset, and what they come from.")
    ] = False,
    unfold: Annotated[bool, flag("--unfold", "Show each node of a wide fan, not their number.")] = False,
    refresh: Annotated[
        bool, flag("--refresh", "First flush the home, and have the analyzers read what waits.")
    ] = False,
    as_mermaid: AsMermaid = False,
    as_dot: AsDot = False,
    svg_file: SvgFile = None,
    graphml_file: GraphmlFile = None,
    as_openlineage: Annotated[
        bool, flag("--openlineage", "Print OpenLineage events that tell the same, one on each line.")
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Show what a dataset or a job depends on, what depends on it, and how it ran last.

    An edge leads from a dataset to a job that reads it, or from a job to a dataset that it writes. So by
    default, a job is shown with the datasets that it reads and writes, and a dataset with the jobs that write
    and read it, and with the latest of their runs that wrote it. A dataset that has several names is shown
    once. A column is shown between the columns that its values, or the choice of its rows, come from, and
    those that come from it. Exit code 2 if nothing has the name, or several have it.

    Below that are, if there are any, the jobs that start it or wait for it, those that it starts or waits
    for, its owners, and the versions of a dataset, the newest first: the last twenty of each, or all with
    --unfold.

    If a node has thirteen neighbours of one type or more, or the one asked for fifty-one, those of one
    namespace are one line or box, which counts them and what only they lead to: ask for one of them, or
    --unfold. A picture of a large graph also has one box for a long chain, and never more than some hundreds
    of boxes. --json, --graphml and --openlineage have everything.

    What events say themselves is shown at once, but analyzers read their SQL and the like a little later.
    --refresh has everything read that the home has accepted, as `waybill flush` does, and then shows it. Exit
    code 1 if that takes more than a minute, or if the index is held up; 2 if there is no journal to flush.

    Examples:
      waybill lineage daily_orders
      waybill lineage s3://lake/orders --up all --down all
      waybill lineage orders --down 4 --as-of '2 days ago' --json
      waybill lineage orders.total --up all --refresh
      waybill lineage orders --up 2 --columns
      waybill lineage orders --up all --down all --svg orders.svg
      waybill lineage orders --down all --graphml orders.graphml
    """
    forms = {"--mermaid": as_mermaid, "--dot": as_dot, "--svg": svg_file, "--graphml": graphml_file}
    refuse_several(forms | {"--openlineage": as_openlineage, "--json": as_json})
    as_of_ms = None if as_of is None else moment(as_of, UTC, "--as-of")
    edges = (_edges(up, "--up"), _edges(down, "--down"))
    if refresh:
        _refresh(settings)
    from waybill.lineage import drawing
    from waybill.lineage.graph import NO_NAMESPACE, Graph, OfDependencies

    found = ask_graph(settings, OfDependencies(name, *edges, as_of_ms, columns))
    if not found.node.namespace:
        console.note(NO_NAMESPACE)
    if as_json:
        console.json(as_plain(found))
        return
    graph = Graph.of(found)
    boxes_of = functools.partial(drawing.boxes_of_graph, graph)
    if draw(forms, boxes_of, lambda: drawing.graphml_of_graph(graph), unfold=unfold):
        return
    if as_openlineage:
        now = instant(SYSTEM_CLOCK.now_ms())
        write(STDOUT, "\n".join(drawing.openlineage_of(graph, now)))
        return
    for line in lines_of(found, name, edges, None if unfold else drawing.FOLDED_FROM):
        console.line(line)


def _refresh(settings: Settings) -> None:
    """Flush the home, and have the analyzers read what waits for them.

    Raises:
        NotFoundError: there is no journal to flush.
        WaybillError: the index is held up, or this takes too long.
    """
    from waybill.lineage.graph import OfAnalyzers

    if not can_flush(settings):
        raise NotFoundError(
            f"{settings.home} has no journal, so nothing can be refreshed; leave out --refresh"
        )
    until_s = SYSTEM_CLOCK.monotonic_s() + _REFRESH_S
    for attempt in itertools.count(1):
        # A process that flushes a home without a runner has the analyzers read for some seconds only.
        report = flush_with_progress(settings, max(until_s - SYSTEM_CLOCK.monotonic_s(), 0.0))
        if (problem := report.problems.get(INDEX)) is not None:
            raise WaybillError(problem)
        waiting = report.left.get(INDEX, 0) or ask_graph(settings, OfAnalyzers()).waiting
        if not waiting:
            return
        if SYSTEM_CLOCK.monotonic_s() >= until_s:
            what = f"{counted(waiting, 'event')} could not be read within {_REFRESH_S:g} s"
            raise WaybillError(f"{what}; ask again, or leave out --refresh to see what is known")
        SYSTEM_CLOCK.sleep(max(min(_POLL_S * attempt, until_s - SYSTEM_CLOCK.monotonic_s()), 0.0))


def _edges(text: str, option: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise typer.BadParameter(f"{text!r} is no number of edges; give one, or all", param_hint=option)
    return int(text)


def lines_of(
    found: Dependencies, name: str, edges: tuple[object, object], folded_from: int | None = None
) -> Iterator[str]:
    """What is printed of a dataset or a job; nothing of a direction in which 0 `edges` were followed.

    For `folded_from` see `waybill.lineage.drawing.fold`.
    """
    from waybill.lineage.drawing import columns_said
    from waybill.lineage.graph import Graph

    yield f"Lineage for: {console.shown(name)}"
    yield _RULE
    below = {some.dataset: columns_said(some) for some in found.columns}
    if found.node in below:
        yield ""
        yield "Columns:"
        yield from (f"  {console.shown(row)}" for row in below[found.node])
    ways = (("Upstream", found.upstream), ("Downstream", found.downstream))
    for title, reach in itertools.compress(ways, edges):
        yield ""
        yield f"{title}:"
        graph = Graph.between(found.node, (reach,))
        tree = _tree(graph, folded_from, below, is_down=reach is found.downstream)
        yield from tree if reach.nodes else ("  none",)
    yield ""
    yield "Last Run:"
    yield from _of_run(found.last_run, None if found.last_job == found.node else found.last_job)
    yield from _of_related(found, None if folded_from is None else _RELATED_MAX)


def lines_of_onward(onward: Onward, folded_from: int | None = None) -> Iterator[str]:
    """What is printed of where the data of files went on."""
    from waybill.lineage.graph import Graph, Reach, shown

    below: defaultdict[Node, list[Edge]] = defaultdict(list)
    for edge in onward.beyond.edges:
        below[edge.source].append(edge)
    if below:
        yield "Went on to:"
    for dataset in [one for one in onward.datasets if one in below]:
        yield f"  {console.shown(shown(dataset))}"
        reached, edges = {dataset: 0}, list(below[dataset])
        for edge in edges:
            if edge.target not in reached:
                reached[edge.target] = reached[edge.source] + 1
                edges += below[edge.target]
        nodes = (node for node in onward.beyond.nodes if node.node in reached)
        graph = Graph.between(dataset, (Reach(tuple(nodes), tuple(edges)),))
        yield from (f"  {line}" for line in _tree(graph, folded_from, {}, is_down=True))


def _tree(
    graph: Graph, folded_from: int | None, rows: Mapping[Node, list[str]], *, is_down: bool
) -> Iterator[str]:
    """What was reached in one direction as a tree; what has been shown is not opened again.

    Args:
        graph: what was reached.
        folded_from: see `waybill.lineage.drawing.fold`.
        rows: by dataset, the lines of text below it.
        is_down: whether it was reached with the flow of data.
    """
    from waybill.lineage.drawing import branches, fold, said_of_group
    from waybill.lineage.graph import shown

    folded = fold(graph, folded_from=folded_from, for_list=True)
    beyond: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for source, _, target in folded.links:
        near, far = (source, target) if is_down else (target, source)
        if folded.groups[near].node is not None:  # what folded nodes lead to is counted, or beside another
            beyond[near][far] = None
    seen: set[int] = set()

    def below(place: int) -> list[int]:
        """What a node leads to, the folded ones last."""
        after = (
            [] if place in seen else sorted(beyond[place], key=lambda one: folded.groups[one].node is None)
        )
        seen.add(place)
        return after

    for place, _, is_last in branches([0], below):
        if not is_last:
            continue
        group = folded.groups[place]
        branch, under = rails(is_last)
        words = said_of_group(group) if group.node is None else shown(group.node)
        is_above = place in seen and (beyond[place] or group.node is None)
        doubt = "  maybe" if group.node in graph.doubtful else ""
        yield f"  {branch}{console.shown(words)}{doubt}{'  see above' if is_above else ''}"
        if place not in seen and group.node is not None:
            for row in rows.get(group.node, ()):
                yield f"  {under}{'│  ' if beyond[place] else '   '}{console.shown(row)}"


def _of_run(run: LastRun | None, job: Node | None) -> Iterator[str]:
    if run is None:
        yield "  none"
        return
    from waybill.lineage.graph import shown

    if job is not None:
        yield f"  Job: {console.shown(shown(job))}"
    yield f"  Status: {run.state}"
    yield f"  Started: {_second(run.started_ms)}"
    if run.ended_ms is not None:
        yield f"  Finished: {_second(run.ended_ms)}"
        yield f"  Duration: {duration_text((run.ended_ms - run.started_ms) / 1_000)}"
    if run.clock_ahead_s is not None:
        ahead = f"the sender's is {duration_text(run.clock_ahead_s)} ahead"
        yield f"  Clock: {ahead}, so its events count as of their receipt"


def _of_related(found: Dependencies, limit: int | None) -> Iterator[str]:
    """The jobs, owners and versions of a dataset or a job, of each kind so many at most."""
    from waybill.lineage.graph import NodeKind, shown

    for title, ends in found.sides():
        yield ""
        yield f"{title.title()}:"
        for end in ends[:limit]:
            words = end.name if end.kind is NodeKind.OWNER else end.version or shown(end)
            yield f"  {console.shown(words)}"
        if more := len(ends[len(ends[:limit]) :]):
            yield f"  and {more:,} more, told earlier: --unfold lists them"


def _second(at_ms: int) -> str:
    return f"{iso(at_ms)[:19]}Z"
