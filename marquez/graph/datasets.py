"""The datasets that the graph knows: the sinks that write them, and their columns.

A sink whose dataset is known is drawn as that dataset, so that a flow of files and the Spark runs that write
or read the dataset are one graph. Marquez removes the columns of a dataset when a run that names it without a
schema completes, so the last schema is remembered and sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import DATA_SINK
from waybill.facets.flows import FlowNode
from waybill.facets.standard import read_members

if TYPE_CHECKING:
    from waybill.facets.event import OutputDataset

DATASET_PREFIX: Final = "dataset:"

DATASETS_MAX: Final = 1_000
"""Beyond that, the oldest that no sink writes is forgotten; if there is none, no more are learned."""
FACET_MAX_BYTES: Final = 16 * 1024
"""Larger facets are not remembered."""

COLUMN_FACETS: Final = ("schema", "columnLineage")

_MARKS: Final = tuple(mark.encode() for mark in (DATA_SINK, *COLUMN_FACETS))


class Dataset(msgspec.Struct):
    """One dataset, as it is stored.

    Attributes:
        sinks: the sinks that write it, each by its system and its name.
        facets: those about its columns, as the last event had them.
    """

    node: FlowNode
    sinks: set[FlowNode] = msgspec.field(default_factory=set)
    facets: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


class Datasets:
    """The known datasets.

    Args:
        rows: the stored ones by key.
    """

    def __init__(self, rows: Mapping[str, bytes]) -> None:
        stored = [msgspec.json.decode(row, type=Dataset) for row in rows.values()]
        self._known = {one.node: one for one in stored}
        self._of_sink = {sink: one.node for one in stored for sink in one.sinks}
        self._changed: set[FlowNode] = set()

    def learn(self, outputs: Iterable[OutputDataset]) -> dict[FlowNode, FlowNode]:
        """Learn from an event's outputs; returns the successor of each dataset that lost its last sink."""
        moved: dict[FlowNode, FlowNode] = {}
        for written in outputs:
            if any(mark in bytes(written.facets) for mark in _MARKS):
                moved |= self._learn(written)
        return moved

    def _learn(self, written: OutputDataset) -> dict[FlowNode, FlowNode]:
        facets = read_members(written.facets)
        node = FlowNode(written.namespace, written.name)
        named = (FlowNode(*sink) for sink in written.sinks)
        sinks = [sink for sink in named if sink != node and self._of_sink.get(sink) != node]
        known = self._known.get(node)
        columns: dict[str, msgspec.Raw] = {
            name: facets[name]
            for name in COLUMN_FACETS
            if name in facets and facets[name] != b"null" and len(facets[name]) <= FACET_MAX_BYTES
        }
        if known is not None:
            columns = {name: raw for name, raw in columns.items() if known.facets.get(name) != raw}
        if not (sinks or columns) or (known is None and not self._make_room()):
            return {}
        known = self._known.setdefault(node, Dataset(node))
        known.facets |= columns
        self._changed.add(node)
        moved = {}
        for sink in sinks:
            before = self.node_of(sink)
            self._of_sink[sink] = node
            known.sinks.add(sink)
            if before in self._known:
                self._known[before].sinks.discard(sink)
                self._changed.add(before)
            if not self.sinks_of(before):
                moved[before] = node
        return moved

    def _make_room(self) -> bool:
        """Forget a dataset if there are too many; False if sinks write all of them."""
        if len(self._known) < DATASETS_MAX:
            return True
        dropped = next((node for node, one in self._known.items() if not one.sinks), None)
        if dropped is None:
            return False
        del self._known[dropped]
        self._changed.add(dropped)
        return True

    def node_of(self, dataset: FlowNode) -> FlowNode:
        """The dataset that a sink writes, as far as it is known; any other dataset is itself."""
        return self._of_sink.get(dataset, dataset)

    def sinks_of(self, node: FlowNode) -> list[FlowNode]:
        """The sinks that write a dataset, in order."""
        known = self._known.get(node)
        return sorted(known.sinks) if known is not None else []

    def columns_of(self, node: FlowNode) -> Mapping[str, msgspec.Raw]:
        """The facets about the columns of a dataset, as far as they are known."""
        known = self._known.get(node)
        return known.facets if known is not None else {}

    def changed(self) -> Iterator[tuple[str, bytes | None]]:
        """The key and the row of each dataset that has changed since the last call; None: it is forgotten."""
        for node in self._changed:
            known = self._known.get(node)
            key = f"{DATASET_PREFIX}{digest_of(node)}"
            yield key, None if known is None else msgspec.json.encode(known, order="deterministic")
        self._changed.clear()


def digest_of(node: FlowNode) -> str:
    """What stands for a job or a dataset in the keys of state."""
    return blake2b(msgspec.json.encode(node), digest_size=12).hexdigest()
