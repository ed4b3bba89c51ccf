"""The records that the demo leaves: how many ended in which state, and one file's journey."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from rich.text import Text
from rich.tree import Tree

from waybill.cli.records import STATE_STYLES, passage_of
from waybill.facets import FinalState, ProvenanceRecord


class StateCount(NamedTuple):
    """How many records ended in one state."""

    state: FinalState
    tracked: int
    spark: int


class Trail:
    """The records that the demo left.

    Args:
        records: all of them, the Tracker's and those of Spark's own runs.
    """

    def __init__(self, records: list[ProvenanceRecord]) -> None:
        self._records = sorted(records, key=lambda record: record.completed)
        self._years = [record for record in self._records if record.final_state is FinalState.SPLIT]
        dids = {record.did for record in self._years}
        self._tracked = [record for record in self._records if dids & {record.did, record.parent_did}]

    @property
    def year(self) -> ProvenanceRecord:
        """The year's file, the latest one if a demo came before."""
        return self._years[-1]

    def by_state(self) -> list[StateCount]:
        """Each final state, in the order of their definition."""
        every = Counter(record.final_state for record in self._records)
        tracked = Counter(record.final_state for record in self._tracked)
        return [StateCount(state, tracked[state], every[state] - tracked[state]) for state in FinalState]

    def extent(self) -> tuple[int, frozenset[str]]:
        """When the first record completed, in epoch milliseconds, and the systems that they are of."""
        return self._records[0].completed, frozenset(record.system_name for record in self._records)

    def journey(self) -> Tree:
        """From the year's file to the ends of the first month that got through, and Spark's work on it."""
        months = [record for record in self._tracked if record.parent_did == self.year.did]
        month = min((record for record in months if record.data_sink), key=lambda record: record.filename)
        tree = Tree(_name(self.year))
        tree.add(_end(self.year))
        branch = tree.add(_name(month))
        for record in months:
            if record.did == month.did:
                branch.add(_end(record))
        runs = branch.add(Text("what Spark's listener says of the same work"))
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
