"""What the demo shows at its end: its records, its files, one file's journey, and where to look next."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from rich.text import Text
from rich.tree import Tree

from waybill.cli import console
from waybill.cli.demo import pipeline
from waybill.cli.demo.trail import RebuildCheck, Trail
from waybill.facets import ProvenanceRecord

MARQUEZ_PAGE_PORT: Final = 3000
"""The port of Marquez's page in Marquez's own compose file."""


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
    counted = f"SELECT final_state, count(*) FROM '{compacted}' GROUP BY ALL"  # noqa: S608 - shown to a person, never run
    waybill = _command()
    steps = [
        ("What failed, and why:", f"{waybill} find --home {home} --state ERROR"),
        ("What became of the year's file:", f"{waybill} find --home {home} --parent {year.did}"),
        ("What the journal holds, and how far each projection is:", f"{waybill} status --home {home}"),
        (
            "Rebuild the same files from the archive of events:",
            f"{waybill} rebuild --from events {home} --to DIR",
        ),
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
