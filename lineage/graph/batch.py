"""What the entries of a batch tell of the graph that a database does not have, each thing once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from waybill.facets import (
    UNREADABLE,
    DatasetEvent,
    FinalState,
    RunEvent,
    RunState,
    has_record,
    merge_states,
    observe_times,
    parse_instant_us,
)
from waybill.facets.flows import state_in
from waybill.facets.spark_writes import written

from .elements import AHEAD_US, HOUR_US, Node, NodeKind, Seen, number_of
from .naming import settle_dataset, settle_names
from .observing import Part, is_too_long, job_of, observe_part, part_of_file, parts_of

if TYPE_CHECKING:
    from waybill.facets import Event
    from waybill.facets.event import DatasetName

    from .analysing import FoundEvent
    from .elements import EdgeKind
    from .observing import Observed, Told

_PASSED: Final = str(FinalState.COMPLETE)
_SIZE_MAX: Final = 200_000
"""So many nodes, edges and the like are kept in memory, and those of one event more."""
_BYTES_EACH: Final = 512


def last_part_of(name: str) -> str:
    """The last part of a name: of a path behind a slash, else, as in ``db.schema.table``, behind a dot."""
    path = name.rstrip("/")
    return path.rpartition("/" if "/" in path else ".")[2]


class LastFile(msgspec.Struct, frozen=True, order=True, array_like=True):
    """The file of a job that ended last; the greatest counts. For `ahead_us` see `RunRow`."""

    ended_us: int
    began_us: int
    final_state: str
    did: str
    ahead_us: int = 0


class RunRow(msgspec.Struct, array_like=True):
    """A run, the datasets that it reads and writes, by number, and how far its sender's clock was ahead."""

    state: RunState
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    ahead_us: int = 0

    def merge(self, *others: RunRow) -> RunRow:
        """What all of them tell of the run."""
        return RunRow(
            merge_states(self.state, *(one.state for one in others)),
            tuple(sorted({*self.inputs}.union(*(one.inputs for one in others)))),
            tuple(sorted({*self.outputs}.union(*(one.outputs for one in others)))),
            max([self.ahead_us, *(one.ahead_us for one in others)]),
        )


class Known:
    """What the database has of a part; see `Seen`.

    Attributes:
        last_us: as its properties have it.
        properties: their keys in the table.
    """

    __slots__ = ("first_us", "last_hour", "last_us", "properties", "run")

    def __init__(self, seen: Seen) -> None:
        self.first_us, self.last_hour, self.run = seen
        self.last_us = self.first_us
        self.properties: tuple[tuple[int, str, int], ...] = ()

    def has(self, seen: Seen) -> bool:
        """Whether its nodes and edges would not change."""
        first_us, last_hour, run = seen
        if first_us < self.first_us or last_hour > self.last_hour:
            return False
        return last_hour < self.last_hour or run >= self.run

    def take(self, seen: Seen) -> None:
        """Note that it was seen."""
        merged = Seen(self.first_us, self.last_hour, self.run).merge(seen)
        self.first_us, self.last_hour, self.run = merged
        self.last_us = max(self.last_us, seen.first_us)


class _Edge(NamedTuple):
    scope: int
    confidence: float
    detail: str
    place: int
    seen: Seen

    def merge(self, other: _Edge) -> _Edge:
        newest = min((-one.seen.last_hour, one.seen.run, one.detail) for one in (self, other))
        return _Edge(
            self.scope,
            max(self.confidence, other.confidence),
            newest[2],
            min(self.place, other.place),
            self.seen.merge(other.seen),
        )


class Batch:
    """What the entries of a batch tell that the database does not have, each thing once."""

    def __init__(self, known: dict[int, Known], rules: tuple[str, ...]) -> None:
        self.runs: dict[tuple[str, Node], RunRow] = {}
        self.ahead: dict[tuple[str, str], tuple[int, int]] = {}
        """By job or dataset, the time of an event that was ahead, and of its receipt."""
        self._files: dict[Node, LastFile] = {}
        self._passages: dict[int, tuple[Part, LastFile]] = {}
        self.seen_properties: dict[tuple[int, str, int], int] = {}
        self._known = known
        self._rules = rules
        self._others = 0
        self._numbers: dict[Node, int] = {}
        self._nodes: dict[Node, Seen] = {}
        self._edges: dict[tuple[int, EdgeKind, int, int, str], _Edge] = {}
        self._beliefs: dict[tuple[int, int, bool, str, float], Seen] = {}
        self._properties: dict[tuple[int, str, int], tuple[str, int, int]] = {}

    def take(self, event: Event, received_ms: int) -> Seen | None:
        """Take what an event tells; returns when it was seen, unless the database has all of it.

        An event that is timed later than its receipt counts as of that: it would be the last one for ever.
        """
        run = event.run.runId if isinstance(event, RunEvent) else ""
        received_us = received_ms * 1_000
        try:
            said_us = parse_instant_us(event.eventTime)
            ahead_us = _find_ahead_us(said_us, received_us)
            at_us = said_us - ahead_us
            file = (
                self._take_run(event, at_us, received_us, ahead_us) if isinstance(event, RunEvent) else None
            )
        except UNREADABLE:
            return None  # the layout sets it aside
        if file is not None:
            ahead_us = file.ahead_us
        if ahead_us:
            named = event.dataset if isinstance(event, DatasetEvent) else event.job
            self.ahead[named.namespace, named.name] = (received_us + ahead_us, received_us)
        seen = Seen(at_us, at_us // HOUR_US, run)
        keys = [self._take_part(part, seen) for part in parts_of(event)]
        if (part := part_of_file(event)) is not None:
            keys.append(self._take_part(part, seen))
            if file is not None:
                self._take_passage(keys[-1], part, file)
        _, is_told = self._know(hash(tuple(keys)), seen)
        return None if is_told else seen

    @property
    def size(self) -> int:
        """How many nodes, edges and the like it has."""
        return len(self._nodes) + len(self._edges) + self._others

    @property
    def is_full(self) -> bool:
        """Whether the rest belongs into another one, so that memory is bounded."""
        return self.size > _SIZE_MAX

    def last_files(self) -> dict[Node, LastFile]:
        """By job whose runs are files, the file that ended last; a job that it passed is complete with it."""
        found = dict(self._files)
        for part, file in self._passages.values():
            steps = part.path.steps if part.path is not None else []
            for step in steps:
                passed = file if step is steps[-1] else msgspec.structs.replace(file, final_state=_PASSED)
                job = Node(NodeKind.JOB, *step.node)
                found[job] = max(passed, found.get(job, passed))
        return found

    def take_found(self, found: Iterable[FoundEvent], seen: Seen) -> None:
        """Take what analyzers found in an event that was seen then."""
        for event, analyzer, confidence in found:
            for part in parts_of(event, is_found=True):
                self._observe(observe_part(part, analyzer, confidence), seen)

    def node_rows(self) -> list[tuple[Any, ...]]:
        """The rows of the nodes."""
        rows = []
        for node, seen in self._nodes.items():
            part = node.column or node.version
            names = (node.kind, node.namespace, node.name, part, part or last_part_of(node.name))
            rows.append((self._numbers[node], *names, seen.first_us, seen.last_hour))
        return sorted(rows)

    def edge_rows(self) -> list[tuple[Any, ...]]:
        """The rows of the edges."""
        rows = []
        for key, (*told, seen) in self._edges.items():
            first_us, last_hour, run = seen
            rows.append((*key, *told, first_us, last_hour, run))
        return sorted(rows)

    def belief_rows(self) -> list[tuple[Any, ...]]:
        """The rows of who has told all that there is of something, and how sure that is."""
        return [(*key, *seen[:2]) for key, seen in self._beliefs.items()]

    def property_rows(self) -> list[tuple[Any, ...]]:
        """The rows of the properties."""
        return [(*key, *told) for key, told in self._properties.items()]

    def _know(self, key: int, seen: Seen) -> tuple[Known, bool]:
        """What the database has of a part, and whether that is all."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Known(seen)
        elif known.has(seen):
            return known, True
        else:
            known.take(seen)
        return known, False

    def _take_part(self, part: Part, seen: Seen) -> int:
        key, at_us = hash(part), seen.first_us
        known, is_told = self._know(key, seen)
        if not is_told:
            known.properties = self._observe(observe_part(part), seen)
        elif at_us > known.last_us:
            known.last_us = at_us
            if known.properties:
                self.seen_properties |= dict.fromkeys(known.properties, at_us)
        return key

    def _observe(self, told: Observed, seen: Seen) -> tuple[tuple[int, str, int], ...]:
        told, at_us = settle_names(told, self._rules), seen.first_us
        for node in told.nodes:
            self._number_of(node)
            self._nodes[node] = seen.merge(self._nodes.get(node, seen))
        for edge in told.edges:
            self._take_edge(edge, seen)
        for job, dataset, of_columns, analyzer, confidence in told.beliefs:
            belief = (self._number_of(job), self._number_of(dataset), of_columns, analyzer, confidence)
            self._beliefs[belief] = seen.merge(self._beliefs.get(belief, seen))
        return tuple(
            self._take_property((self._number_of(node), name, number_of(value)), value, at_us)
            for (node, name), value in told.properties.items()
        )

    def _take_property(self, key: tuple[int, str, int], value: str, at_us: int) -> tuple[int, str, int]:
        if key not in self._properties:
            self._others += len(value) // _BYTES_EACH
        _, first_us, last_us = self._properties.get(key, (value, at_us, at_us))
        self._properties[key] = (value, min(first_us, at_us), max(last_us, at_us))
        return key

    def _take_edge(self, told: Told, seen: Seen) -> None:
        source, kind, target, job, analyzer, confidence, detail, place = told
        scope = 0
        if job is not None:
            scope = self._number_of(target.dataset if target.kind is NodeKind.COLUMN else target)
        edge = _Edge(scope, confidence, detail, place, seen)
        key = (self._number_of(source), kind, self._number_of(target), self._number_of(job), analyzer)
        known = self._edges.get(key)
        self._edges[key] = edge if known is None else edge.merge(known)

    def _number_of(self, node: Node | None) -> int:
        if node is None:
            return 0
        number = self._numbers.get(node)
        if number is None:
            number = self._numbers[node] = node.number
        return number

    def _take_run(self, event: RunEvent, at_us: int, received_us: int, ahead_us: int) -> LastFile | None:
        """Take how a run or, which is returned, a file ended."""
        job, facets = job_of(event.job), event.run.facets
        if has_record(event):
            file = _file_of(event, at_us, received_us, ahead_us)
            self._files[job] = max(file, self._files.get(job, file))
            return file
        if facets is not None and (facets.delta_file is not None or facets.summary):
            return None  # a file that has begun, or a summary of files
        used = self._numbers_of(event.inputs or ()), self._numbers_of(written(event))
        run = RunRow(observe_times(event, at_us), *used, ahead_us)
        key = (event.run.runId, job)
        known = self.runs.get(key)
        self.runs[key] = run if known is None else known.merge(run)
        return None

    def _numbers_of(self, datasets: Iterable[DatasetName]) -> tuple[int, ...]:
        numbers = {
            self._number_of(settle_dataset(one.namespace, one.name, self._rules))
            for one in datasets
            if not is_too_long(one)
        }
        return tuple(sorted(numbers))

    def _take_passage(self, key: int, part: Part, file: LastFile) -> None:
        known = self._passages.get(key)
        if known is None and part.path is not None:
            self._others += len(part.path.transforms)
        if known is None or file > known[1]:
            self._passages[key] = (part, file)


def _file_of(event: RunEvent, at_us: int, received_us: int, ahead_us: int) -> LastFile:
    facets = event.run.facets
    assert facets is not None  # noqa: S101 - it has a record
    file = facets.delta_file
    assert file is not None  # noqa: S101 - it has a record
    said_us = [at_us if text is None else parse_instant_us(text) for text in (file.completed, file.created)]
    more_us = [_find_ahead_us(one, received_us) for one in said_us]
    ended_us, began_us = (
        (said - ahead) // 1_000 * 1_000 for said, ahead in zip(said_us, more_us, strict=True)
    )
    return LastFile(ended_us, began_us, str(state_in(event)), file.did, max(ahead_us, *more_us))


def _find_ahead_us(said_us: int, received_us: int) -> int:
    """By how much a time is ahead of its receipt, as of which it then counts; 0: it is not, or not much."""
    return said_us - received_us if 0 < received_us < said_us - AHEAD_US else 0
