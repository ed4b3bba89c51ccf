"""Where the values of a column come from, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from waybill.transport.errors import NotFoundError

from .asking import find_node, shown
from .elements import Ask, EdgeKind, Node, NodeKind
from .properties import properties_of, sql_in
from .walking import COLUMNS, FLOW, Nodes, Walk

if TYPE_CHECKING:
    from .elements import Edge

_DIRECT, _INDIRECT = "direct", "indirect"


class OriginStep(msgspec.Struct, frozen=True):
    """A column that another one comes from.

    Attributes:
        source: the column; a dataset stands for what decides all its rows, or for columns that nobody named.
        target: the column, or the dataset, that comes from it.
        how: ``direct``: its values do; ``indirect``: only the choice or the order of its rows does.
        transformations: what happens to the values, as OpenLineage's types and subtypes: `DIRECT/IDENTITY`.
        is_masked: whether the values are hidden on the way.
        is_guess: whether it is only likely, since the columns have the same name.
        job: the job that does it; None: an event of the dataset alone said so.
    """

    source: Node
    target: Node
    how: str
    transformations: tuple[str, ...]
    is_masked: bool
    is_guess: bool
    job: Node | None


class JobText(msgspec.Struct, frozen=True):
    """The SQL of a job, as its last event had it."""

    job: Node
    sql: str


class Origins(msgspec.Struct, frozen=True):
    """Where the values of a column come from.

    Attributes:
        column: the column.
        steps: all steps on the way, the nearest first; empty: nothing is known.
        ends: the columns and datasets among them that come from nothing that is known.
        texts: the SQL of their jobs, where it is known.
        maybe: the datasets that events name among the inputs of their jobs, and of which an analyzer has not
            found what they go into.
    """

    column: Node
    steps: tuple[OriginStep, ...]
    ends: tuple[Node, ...]
    texts: tuple[JobText, ...]
    maybe: tuple[Node, ...] = ()


def find_origins(ask: Ask, name: str) -> Origins:
    """Where the values of a column come from.

    Raises:
        NotFoundError: no column has this name, or several have it.
    """
    column = find_node(ask, name)
    if column.kind is not NodeKind.COLUMN:
        raise NotFoundError(
            f"{shown(column)} is a {column.kind}, no column; give a dataset, a dot and its column"
        )
    nodes = Nodes(ask)
    reach = Walk(nodes, [column], down=False, kinds=COLUMNS).reach()
    written = {column.dataset, *(edge.target.dataset for edge in reach.edges)}
    inputs = Walk(nodes, written, down=False, kinds=FLOW, depth=2).reach().nodes
    maybe = tuple(one.node for one in inputs if not one.is_certain)
    derived = {edge.target for edge in reach.edges}
    ends = tuple(one.node for one in reach.nodes if one.node not in derived)
    jobs = {edge.job.number: edge.job for edge in reach.edges if edge.job is not None}
    facets = properties_of(ask, jobs, "sql")
    texts = ((job, sql_in(facets.get((number, "sql"), "{}"))) for number, job in jobs.items())
    return Origins(
        column,
        tuple(map(_step, reach.edges)),
        ends,
        tuple(JobText(job, sql) for job, sql in texts if sql),
        maybe,
    )


def _step(edge: Edge) -> OriginStep:
    how = _DIRECT if edge.kind is EdgeKind.DERIVE else _INDIRECT
    return OriginStep(
        edge.source, edge.target, how, edge.transformations, edge.masking, edge.is_guess, edge.job
    )
