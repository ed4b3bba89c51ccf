"""`waybill lineage`: what a dataset or a job depends on, and what depends on it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from waybill.transport import Settings

from .. import console
from ..arguments import JsonObject
from ..arrow import arrow_alone
from ..graph import NodeName, ask_graph
from ..options import with_settings
from ..records import as_plain, iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.lineage.graph import Dependencies, LastRun, Node, Reach

_RULE: Final = "━" * 39
_DIGITS_MAX: Final = 9


@with_settings("home", "root")
@arrow_alone()
def lineage(
    settings: Settings,
    *,
    name: NodeName,
    up: Annotated[str, typer.Option(metavar="EDGES", help="Follow so many edges upstream, or all.")] = "1",
    down: Annotated[
        str, typer.Option(metavar="EDGES", help="Follow so many edges downstream, or all.")
    ] = "1",
    as_json: JsonObject = False,
) -> None:
    """Show what a dataset or a job depends on, what depends on it, and how it ran last.

    An edge leads from a dataset to a job that reads it, or from a job to a dataset that it writes. So by
    default, a job is shown with the datasets that it reads and writes, and a dataset with the jobs that write
    and read it, and with the latest of their runs that wrote it. A dataset that has several names is shown
    once. A column is shown between the columns that its values, or the choice of its rows, come from, and
    those that come from it. Exit code 2 if nothing has the name, or several have it.

    Examples:

    \b
      waybill lineage daily_orders
      waybill lineage s3://lake/orders --up all --down all
      waybill lineage orders --down 4 --json
      waybill lineage orders.total --up all
    """
    from waybill.lineage.graph import OfDependencies

    found = ask_graph(settings, OfDependencies(name, _edges(up, "--up"), _edges(down, "--down")))
    if as_json:
        console.json(as_plain(found))
        return
    for line in lines_of(found, name):
        console.line(line)


def _edges(text: str, option: str) -> int | Literal["all"]:
    if text == "all":
        return "all"
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise typer.BadParameter(f"{text!r} is no number of edges; give one, or all", param_hint=option)
    return int(text)


def lines_of(found: Dependencies, name: str) -> Iterator[str]:
    """What is printed of a dataset or a job."""
    yield f"Lineage for: {console.shown(name)}"
    yield _RULE
    for title, reach, is_down in (
        ("Upstream", found.upstream, False),
        ("Downstream", found.downstream, True),
    ):
        yield ""
        yield f"{title}:"
        yield from _tree(reach, found.node, is_down=is_down) if reach.nodes else ("  none",)
    yield ""
    yield "Last Run:"
    yield from _of_run(found.last_run, None if found.last_job == found.node else found.last_job)


def _tree(reach: Reach, origin: Node, *, is_down: bool) -> Iterator[str]:
    """The nodes as a tree; one that has been shown is not opened again."""
    from waybill.lineage.graph import shown

    nearer: defaultdict[Node, list[Node]] = defaultdict(list)
    for edge in reach.edges:
        near, far = (edge.source, edge.target) if is_down else (edge.target, edge.source)
        nearer[near].append(far)
    opened = {origin}
    stack = [(one, "  ", at == len(nearer[origin]) - 1) for at, one in enumerate(nearer[origin])]
    stack.reverse()
    while stack:
        node, indent, is_last = stack.pop()
        is_repeat = node in opened
        beyond = [] if is_repeat else nearer[node]
        opened.add(node)
        told = "  see above" if is_repeat and nearer[node] else ""
        yield f"{indent}{'└─' if is_last else '├─'} {console.shown(shown(node))}{told}"
        below = f"{indent}{'   ' if is_last else '│  '}"
        stack += [(one, below, at == len(beyond) - 1) for at, one in reversed([*enumerate(beyond)])]


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
        yield f"  Duration: {_duration(run.ended_ms - run.started_ms)}"


def _second(at_ms: int) -> str:
    return f"{iso(at_ms)[:19]}Z"


def _duration(duration_ms: int) -> str:
    """A duration in its two largest units."""
    seconds, milliseconds = divmod(max(duration_ms, 0), 1_000)
    if not seconds:
        return f"{milliseconds}ms"
    sizes = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
    parts: list[str] = []
    for unit, size in sizes:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])
