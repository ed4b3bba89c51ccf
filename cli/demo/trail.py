"""The trail of the demo: its records, and the proof that they can be rebuilt from its stored events."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.text import Text
from rich.tree import Tree

from waybill.facets import FinalState, ProvenanceRecord
from waybill.facets.record import passage_of

from ..records import STATE_STYLES

if TYPE_CHECKING:
    from waybill.exporter import Source, Wanted
    from waybill.transport import Settings


class StateCount(NamedTuple):
    """The number of records that ended in one state: those of the Tracker, and those of Spark's own runs."""

    state: FinalState
    tracked: int
    spark: int


class Trail:
    """The records of the demo: the Tracker's, and those of Spark's own runs."""

    def __init__(self, records: list[ProvenanceRecord]) -> None:
        self._records = sorted(records, key=lambda record: record.completed)
        self._years = [record for record in self._records if record.final_state is FinalState.SPLIT]
        dids = {record.did for record in self._years}
        self._tracked = [record for record in self._records if dids & {record.did, record.parent_did}]

    @property
    def year(self) -> ProvenanceRecord:
        """The record of the year's file; after several demos, the latest one."""
        return self._years[-1]

    def by_state(self) -> list[StateCount]:
        """The number of records that ended in each state."""
        every = Counter(record.final_state for record in self._records)
        tracked = Counter(record.final_state for record in self._tracked)
        return [StateCount(state, tracked[state], every[state] - tracked[state]) for state in FinalState]

    def extent(self) -> tuple[int, frozenset[str]]:
        """When the first record completed, in epoch milliseconds, and the systems of all records."""
        return self._records[0].completed, frozenset(record.system_name for record in self._records)

    def journey(self) -> Tree:
        """The year's file, the first month that reached the sinks, and Spark's own work on that month."""
        months = [record for record in self._tracked if record.parent_did == self.year.did]
        month = min((record for record in months if record.data_sink), key=lambda record: record.filename)
        tree = Tree(_name(self.year))
        tree.add(_end(self.year))
        branch = tree.add(_name(month))
        for record in months:
            if record.did == month.did:
                branch.add(_end(record))
        runs = branch.add(Text("what Spark's listener reports for the same work"))
        for record in self._records:
            if record.parent_did == month.did:
                runs.add(_end(record))
        return tree


def _name(record: ProvenanceRecord) -> Text:
    return Text.assemble((record.filename, "bold"), f"  {record.did}")


def _end(record: ProvenanceRecord) -> Text:
    took_s = (record.completed - record.created) / 1000
    state = (f"{record.final_state.value:9}", STATE_STYLES[record.final_state])
    return Text.assemble(state, f" {passage_of(record)}  ({took_s:.1f} s)")


class RebuildCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A rebuild from one source, compared with the demo's own files.

    Attributes:
        differing: the number of records that differ.
        findings: the number of findings of a verification of the rebuilt files.
        problem: the reason why nothing was rebuilt from this source; None if it was.
    """

    source: str
    events: int = 0
    records: int = 0
    differing: int = 0
    findings: int = 0
    problem: str | None = None

    @property
    def is_different(self) -> bool:
        """Whether the rebuilt files are faulty, or differ from the demo's own."""
        return bool(self.differing or self.findings)

    def verdict(self) -> str:
        """The result in a few words."""
        if self.problem is not None:
            return self.problem
        if self.is_different:
            return f"{self.differing} records differ, {self.findings} findings"
        return "identical"


def rebuilds(trail: Trail, settings: Settings, *, delivered: bool) -> Iterator[RebuildCheck]:
    """Rebuild from each source and compare with the demo's root; from Marquez only if it has every event."""
    from waybill.exporter import Wanted, open_source

    wanted = Wanted(system_name=settings.system_name, rule=settings.annotation_rule)
    for name in ("journal", "events"):
        yield _again(name, open_source(name, [], settings), settings.root, wanted)
    with tempfile.TemporaryDirectory(prefix="waybill-lines-") as folder:
        lines = _as_lines(open_source("journal", [], settings), Path(folder, "events.jsonl"))
        yield _again("jsonl", open_source("jsonl", [str(lines)], settings), settings.root, wanted)
    if settings.marquez_url is None:
        return
    if not delivered:
        yield RebuildCheck(source="marquez", problem="it does not have every event yet")
        return
    # Marquez may also hold events from elsewhere.
    since_ms, systems = trail.extent()
    own = msgspec.structs.replace(wanted, since_ms=since_ms, systems=systems)
    yield _from_marquez(open_source("marquez", [], settings), settings.root, own)


def _as_lines(source: Source, path: Path) -> Path:
    """Write the events as OpenLineage's file transport does, one per line."""
    from waybill.transport import Kind

    with path.open("wb") as file:
        for part in source.parts():
            for batch in source.read(part):
                bodies = (one.body for one in batch if one.kind is Kind.OPENLINEAGE)
                file.writelines(b" ".join(body.splitlines()) + b"\n" for body in bodies)
    return path


def _from_marquez(source: Source, root: Path, wanted: Wanted) -> RebuildCheck:
    from waybill.exporter import SourceError

    try:
        if len(source.parts()) > 1:
            what = "it holds too much else for a demo; use `waybill rebuild --from marquez`"
            return RebuildCheck(source="marquez", problem=what)
        return _again("marquez", source, root, wanted)
    except SourceError as error:
        return RebuildCheck(source="marquez", problem=str(error))


def _again(name: str, source: Source, root: Path, wanted: Wanted) -> RebuildCheck:
    from waybill.exporter import check, compare, rebuild

    with tempfile.TemporaryDirectory(prefix="waybill-again-") as folder:
        report = rebuild(source, Path(folder), wanted)
        checked = list(check(Path(folder)))
        return RebuildCheck(
            source=name,
            events=report.entries,
            records=sum(one.rows for one in checked),
            differing=sum(1 for _ in compare(root, Path(folder))),
            findings=sum(len(one.findings) for one in checked) + (not report.is_whole),
        )
