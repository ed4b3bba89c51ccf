"""Where data went on after its files ended: the datasets that they reached, who read these, and so on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .elements import EdgeKind, Node, NodeKind
from .runs import list_outputs
from .walking import ALWAYS_US, FLOW, NOWHERE, Nodes, Reach, Walk, list_ends, nodes_with

if TYPE_CHECKING:
    from .elements import Ask


class FileEnd(NamedTuple):
    """An end of a file that got to its sink: what its record says.

    Attributes:
        did: the file, or the run.
        system_name: the system that processed it.
        data_source: where it came in.
        data_sink: where it left.
    """

    did: str
    system_name: str
    data_source: str
    data_sink: str


class Onward(msgspec.Struct, frozen=True):
    """Where data went on after its files ended.

    Attributes:
        datasets: those that the files reached.
        beyond: the jobs that read these, what they wrote, and so on.
    """

    datasets: tuple[Node, ...] = ()
    beyond: Reach = NOWHERE


def find_onward(ask: Ask, ends: Iterable[FileEnd], as_of_ms: int | None = None) -> Onward:
    """Find the datasets that files reached, and all that came from these, as far as events name them.

    Args:
        ask: executes statements.
        ends: the ends.
        as_of_ms: leave out what was told first after this instant, in epoch milliseconds.
    """
    as_of_us = ALWAYS_US if as_of_ms is None else as_of_ms * 1_000
    ends = list(ends)
    runs, outputs = set[str](), defaultdict[int, set[int]](set)
    for run, job, wrote in list_outputs(ask, {end.did for end in ends}):
        runs.add(run)
        outputs[job].update(wrote)
    sinks: defaultdict[Node, set[Node]] = defaultdict(set)
    for end in ends:
        if end.did not in runs:
            flow = Node(NodeKind.JOB, end.system_name, end.data_source)
            sinks[flow].add(Node(NodeKind.DATASET, end.system_name, end.data_sink))
    nodes, writers = Nodes(ask), {*nodes_with(ask, outputs).values(), *sinks}
    written = Walk(nodes, writers, down=True, kinds=FLOW, depth=1, as_of_us=as_of_us).reach().edges
    held = _list_held(ask, {sink for some in sinks.values() for sink in some})
    reached = {
        edge.target
        for edge in written
        if not nodes.of([edge.target.number]).isdisjoint(outputs.get(edge.source.number, ()))
        or any(edge.target in held[sink] for sink in sinks.get(edge.source, ()))
    }
    beyond = Walk(Nodes(ask), reached, down=True, kinds=FLOW, as_of_us=as_of_us)
    return Onward(tuple(sorted(reached)), beyond.reach())


def _list_held(ask: Ask, sinks: set[Node]) -> dict[Node, set[Node]]:
    """By sink, the datasets that files which leave through it may be written to; itself is one."""
    holders = {Node(NodeKind.RESOURCE, sink.namespace, sink.name).number: sink for sink in sinks}
    rows = list_ends(ask, "source", holders, EdgeKind.HOLD)
    nodes = nodes_with(ask, {target for _, target in rows})
    held = {sink: {sink} for sink in sinks}
    for source, target in rows:
        held[holders[source]].add(nodes[target])
    return held
