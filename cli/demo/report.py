"""The report at the demo's end: its records, its files, one file's journey, and where to look next."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.text import Text
from rich.tree import Tree

from waybill.facets import ProvenanceRecord
from waybill.marquez.links import page_url
from waybill.transport import Settings
from waybill.transport.errors import install_command

from .. import console
from . import pipeline
from .trail import RebuildCheck, Trail


def file_tree(root: Path) -> Tree:
    """The Parquet files below a folder, with their sizes."""
    branches = {root: Tree(Text(str(root), style="bold"))}
    for path in sorted(root.rglob("*.parquet")):
        for folder in reversed(path.parents):
            if folder not in branches and folder.is_relative_to(root):
                branches[folder] = branches[folder.parent].add(Text(folder.name))
        branches[path.parent].add(Text(f"{path.name}  {path.stat().st_size / 1024:,.1f} KiB"))
    return branches[root]


def show(trail: Trail, home: Path, again: Sequence[RebuildCheck], *, settings: Settings) -> None:
    """Print the whole report."""
    _heading("Records by final state")
    rows = ((count.state.value, str(count.tracked), str(count.spark)) for count in trail.by_state())
    console.drawing(console.grid(("final state", "of files", "of Spark's own runs"), rows))
    _heading("The provenance files")
    console.drawing(file_tree(home / "provenance"))
    _heading("One file's journey")
    console.drawing(trail.journey())
    _heading("The same files again, rebuilt from each place that stores the events")
    columns = ("rebuilt from", "events", "records", "compared with the files above")
    verdicts = ((one.source, f"{one.events:,}", f"{one.records:,}", one.verdict()) for one in again)
    console.drawing(console.grid(columns, verdicts))
    _heading("Where to look next")
    for what, how in next_steps(trail.year, home, settings):
        console.line(what)
        console.line((f"    {how}", "cyan"))


def next_steps(year: ProvenanceRecord, home: Path, settings: Settings) -> list[tuple[str, str]]:
    """The next steps: the purpose of each, and its command or place, ready to paste."""
    waybill, at, again = _command(), shlex.quote(str(home)), shlex.quote(f"{home}-again")
    counted = "SELECT final_state, count(*) FROM provenance GROUP BY ALL"
    sql = f'{waybill} sql --home {at} "{counted}"'
    if find_spec("duckdb") is None:
        sql = f"{shlex.quote(sys.executable)} -m {install_command('sql')} && {sql}"
    steps = [
        ("What failed, and why:", f"{waybill} find --home {at} --state ERROR"),
        ("What became of the year's file:", f"{waybill} find --home {at} --parent {year.did}"),
        ("The proof behind its record:", f"{waybill} explain --home {at} {year.did}"),
        ("What the journal holds, and how far each projection has got:", f"{waybill} status --home {at}"),
        (
            "Rebuild the same files from the archive of events:",
            f"{waybill} rebuild --home {at} --from events {at} --to {again}",
        ),
        ("Is it the same, record by record?", f"{waybill} verify --home {at} {at} {again}"),
        ("Query the files with SQL:", sql),
        ("The pipeline that you just saw:", pipeline.__file__),
        ("Every command:", f"{waybill} --help"),
    ]
    if settings.marquez_page_url:
        url = page_url(settings.marquez_page_url, year.system_name, year.data_source, whole=True)
        steps.append(("The graph, on Marquez's page:", url))
    elif settings.marquez_url is not None:
        with_page = f"WAYBILL_MARQUEZ_PAGE_URL=http://localhost:3000 {waybill} demo --home {at}"
        steps.append(("The same again, with the address of the graph on Marquez's page:", with_page))
    else:
        beside = f"MARQUEZ_URL=http://localhost:5000 {waybill} demo --home {at}"
        steps.append(("The same again, with Marquez:", beside))
    return steps


def _command() -> str:
    """The words that run the command, which may not be on the path."""
    if shutil.which("waybill"):
        return "waybill"
    script = Path(sys.executable).with_name("waybill")
    return shlex.quote(str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script))


def _heading(text: str) -> None:
    console.line("")
    console.line((text, "bold"))
