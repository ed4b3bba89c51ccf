"""What the demo shows at its end: its records, its files, one file's journey, and where to look next."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from rich.text import Text
from rich.tree import Tree

from waybill.cli import console
from waybill.cli.demo import pipeline
from waybill.cli.records import STATE_STYLES, passage_of
from waybill.facets import FinalState, ProvenanceRecord

if TYPE_CHECKING:
    from waybill.cli.demo.rebuild_check import RebuildCheck

MARQUEZ_PAGE_PORT: Final = 3000
"""The port of Marquez's page in Marquez's own compose file."""


class StateCount(NamedTuple):
    """How many records ended in one state."""

    state: FinalState
    tracked: int
    spark: int


class Trail:
    """The records that the demo left: the Tracker's, and those of Spark's own runs."""

    def __init__(self, records: list[ProvenanceRecord]) -> None:
        self._records = sorted(records, key=lambda record: record.completed)
        self._years = [record for record in self._records if record.final_state is FinalState.SPLIT]
        dids = {record.did for record in self._years}
        self._tracked = [record for record in self._records if dids & {record.did, record.parent_did}]

    @property
    def year(self) -> ProvenanceRecord:
        """The year's file; of several demos, that of the latest."""
        return self._years[-1]

    def by_state(self) -> list[StateCount]:
        """How many records ended in each state."""
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


def file_tree(root: Path) -> Tree:
    """The Parquet files below a folder, with their sizes."""
    branches = {root: Tree(Text(str(root), style="bold"))}
    for path in sorted(root.rglob("*.parquet")):
        for folder in reversed(path.parents):
            if folder not in branches and folder.is_relative_to(root):
                branches[folder] = branches[folder.parent].add(Text(folder.name))
        branches[path.parent].add(Text(f"{path.name}  {path.stat().st_size / 1024:,.1f} KiB"))
    return branches[root]


def show(trail: Trail, home: Path, again: Sequence[RebuildCheck], *, marquez_url: str | None) -> None:
    """Print the whole report."""
    _heading("Records by final state")
    rows = ((count.state.value, str(count.tracked), str(count.spark)) for count in trail.by_state())
    console.drawing(console.grid(("final state", "of files", "of Spark's own runs"), rows))
    _heading("The provenance files")
    console.drawing(file_tree(home / "provenance"))
    _heading("One file's journey")
    console.drawing(trail.journey())
    _heading("The same files once more, from each place where the events are stored")
    columns = ("rebuilt from", "events", "records", "beside the files above")
    verdicts = ((one.source, f"{one.events:,}", f"{one.records:,}", one.verdict()) for one in again)
    console.drawing(console.grid(columns, verdicts))
    _heading("Where to look next")
    for what, how in _next_steps(trail.year, home, marquez_url):
        console.line(what)
        console.line((f"    {how}", "cyan"))


def _next_steps(year: ProvenanceRecord, home: Path, marquez_url: str | None) -> list[tuple[str, str]]:
    compacted = home / "provenance" / "compacted" / "*" / "*" / "*.parquet"
    counted = f"SELECT final_state, count(*) FROM '{compacted}' GROUP BY ALL"  # noqa: S608 - told to a person, never run
    waybill = _command()
    steps = [
        ("What failed, and why:", f"{waybill} find --home {home} --state ERROR"),
        ("What became of the year's file:", f"{waybill} find --home {home} --parent {year.did}"),
        ("What is kept, and how far each output is:", f"{waybill} status --home {home}"),
        ("The same from the archive of events, to keep:", f"{waybill} rebuild --from events {home} --to DIR"),
        ("Is it the same, record by record?", f"{waybill} verify {home} DIR"),
        ("Ask the files themselves, with DuckDB or anything that reads Parquet:", f'duckdb -c "{counted}"'),
        ("The pipeline that you just saw:", pipeline.__file__),
        ("Every command:", f"{waybill} --help"),
    ]
    if marquez_url:
        steps.append(("The graph, on Marquez's page:", graph_page(marquez_url, year.system_name)))
    else:
        steps.append(("With Marquez beside it:", f"MARQUEZ_URL=http://localhost:5000 {waybill} demo"))
    return steps


def _command() -> str:
    """How the user can call the command, which need not be on the path."""
    if shutil.which("waybill"):
        return "waybill"
    script = Path(sys.executable).with_name("waybill")
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def graph_page(marquez_url: str, system_name: str) -> str:
    """The address of Marquez's page with the graph of the months, from the year's file to the sinks."""
    parts = urlsplit(marquez_url)
    names = f"{quote(system_name, safe='')}/{quote(pipeline.MONTHS, safe='')}"
    return f"{parts.scheme}://{parts.hostname}:{MARQUEZ_PAGE_PORT}/lineage/dataset/{names}"


def _heading(text: str) -> None:
    console.line("")
    console.line((text, "bold"))
