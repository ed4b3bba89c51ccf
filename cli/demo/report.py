"""The demo's end: its records, one file's journey, rebuilds of the files, and where to look next."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

from waybill.exporter import Source, SourceError, Wanted, check, compare, open_source, rebuild
from waybill.facets import FinalState, ProvenanceRecord
from waybill.lineage import Lineage
from waybill.marquez.links import graph_url
from waybill.transport import Journal, Kind, Settings
from waybill.transport.counting import counted, size_text

from .. import console
from ..commands.trace import show_journey
from . import pipeline

IDENTICAL: Final = "identical"


class RebuildCheck(NamedTuple):
    """The result of comparing a rebuild from one source with the demo's own files."""

    source: str
    events: int
    records: int
    verdict: str


def rebuilds(settings: Settings, sources: Sequence[str], since_ms: int) -> Iterator[RebuildCheck]:
    """Rebuild from each source and compare with the demo's root; Marquez may hold more, also from before."""
    own, rule = settings.system_name, settings.annotation_rule
    wanted = Wanted(system_name=own, rule=rule, since_ms=since_ms, systems=frozenset({own}))
    with tempfile.TemporaryDirectory(prefix="waybill-lines-") as folder:
        lines = _write_lines(settings.home, Path(folder, "events.jsonl"))
        for name in sources:
            source = open_source(name, [str(lines)] if name == "jsonl" else [], settings)
            try:
                yield _rebuild(name, source, settings.root, wanted)
            except SourceError as error:
                yield RebuildCheck(name, 0, 0, str(error))


def _write_lines(home: Path, path: Path) -> Path:
    """Write the events as OpenLineage's file transport does, one per line."""
    with contextlib.closing(Journal(home)) as journal, path.open("wb") as file:
        for entry in journal.read(0, limit=journal.last_seq()):
            if entry.kind is Kind.OPENLINEAGE:
                file.write(b" ".join(entry.body.splitlines()) + b"\n")
    return path


def _rebuild(name: str, source: Source, root: Path, wanted: Wanted) -> RebuildCheck:
    with tempfile.TemporaryDirectory(prefix="waybill-again-") as folder:
        report = rebuild(source, Path(folder), wanted)
        files = list(check(Path(folder)))
        findings = sum(len(file.findings) for file in files) + (not report.is_whole)
        differing = sum(1 for _ in compare(root, Path(folder)))
    differ = "1 record differs" if differing == 1 else f"{differing} records differ"
    verdict = f"{differ}, {counted(findings, 'finding')}" if differing or findings else IDENTICAL
    return RebuildCheck(name, report.entries, sum(file.rows for file in files), verdict)


class Trail:
    """The records of the demo: the Tracker's, and those of Spark's own runs."""

    def __init__(self, records: list[ProvenanceRecord]) -> None:
        by_time = sorted(records, key=lambda record: record.completed)
        years = [record for record in by_time if record.final_state is FinalState.SPLIT]
        dids = {record.did for record in years}
        tracked = Counter(record.final_state for record in records if dids & {record.did, record.parent_did})
        every = Counter(record.final_state for record in records)
        self.since_ms = by_time[0].completed
        self.year = years[-1]
        """The record of the year's file; after several demos, the latest one."""
        months = [record for record in by_time if record.parent_did == self.year.did and record.data_sink]
        self.month = months[0]
        """The first record of a month that reached a sink."""
        self.counts = {
            state.value: {"tracked": tracked[state], "spark": every[state] - tracked[state]}
            for state in FinalState
        }
        """The records that ended in each state: of files, and of Spark's own runs."""


def show(trail: Trail, again: Sequence[RebuildCheck], settings: Settings, left: Collection[str] = ()) -> None:
    """Print the whole report; `left`: the backends that lack events."""
    _show_table(
        "Records by final state",
        ("final state", "of files", "of Spark's own runs"),
        [(state, *map(str, counts.values())) for state, counts in trail.counts.items()],
    )
    _show_heading("The provenance files")
    for path in sorted((settings.root / "provenance").rglob("*.parquet")):
        console.line(f"{path}  {size_text(path.stat().st_size)}")
    _show_heading("The journey of one file, with what Spark's listener reports for the same work")
    show_journey(Lineage.open(settings.home).trace(trail.month.did))
    _show_table(
        "The same files again, rebuilt from each place that stores the events",
        ("rebuilt from", "events", "records", "compared with the files above"),
        [(one.source, f"{one.events:,}", f"{one.records:,}", one.verdict) for one in again],
    )
    _show_heading("Where to look next")
    for what, how in next_steps(trail.year, settings, left).items():
        console.line(what)
        console.line((f"    {how}", "cyan"))
    console.line(f"All of it as a page, at http://{settings.listen}/ while this runs:")
    console.line((f"    {_waybill()} serve --home {quote(str(settings.home))}", "cyan"))


def _waybill() -> str:
    """How to call the command, as a shell takes it."""
    return quote("waybill" if shutil.which("waybill") else f"{Path(sys.executable).parent}/waybill")


def next_steps(year: ProvenanceRecord, settings: Settings, left: Collection[str] = ()) -> dict[str, str]:
    """The next steps by purpose: commands to paste, and places; `left`: the backends that lack events."""
    home, again = quote(str(settings.home)), quote(str(settings.home / "again"))
    waybill = _waybill()
    commands = {
        "What failed, and why:": "find --state ERROR",
        "What became of the year's file:": f"find --parent {year.did}",
        "The proof behind its record:": f"explain {year.did}",
        "What the journal holds, and how far each projection has got:": "status",
        "Rebuild the same files from the archive of events:": f"rebuild --from events {home} --to {again}",
        "Is it the same, record by record?": f"verify {home} {again}",
        "Query the files with SQL:": 'sql "SELECT final_state, count(*) FROM provenance GROUP BY ALL"',
    }
    steps = {what: f"{waybill} {command} --home {home}" for what, command in commands.items()}
    steps["The pipeline that you just saw:"] = pipeline.__file__
    steps["Every command:"] = f"{waybill} --help"
    if settings.marquez_url and "marquez" in left:
        steps["Deliver what Marquez lacks, once it answers:"] = f"{waybill} flush --home {home}"
    elif settings.marquez_url and settings.marquez_page_url:
        graph = graph_url(settings.marquez_page_url, year.system_name, year.data_source)
        steps["The graph, on Marquez's page:"] = graph
    else:
        urls = {
            "MARQUEZ_URL": settings.marquez_url or "http://localhost:5000",
            "WAYBILL_MARQUEZ_PAGE_URL": "http://localhost:3000",
        }
        given = " ".join(f"{name}={quote(url)}" for name, url in urls.items())
        where = (
            "The same again, with Marquez and its page, once they run at these addresses (`waybill dev up`):"
        )
        steps[where] = f"{given} {waybill} demo --home {home}"
    return steps


def _show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    _show_heading(title)
    console.drawing(console.grid(columns, rows))


def _show_heading(text: str) -> None:
    console.line("")
    console.line((text, "bold"))
