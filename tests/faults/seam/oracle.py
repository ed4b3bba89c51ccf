"""The oracle: checks what must be true after any fault.

- Every acknowledged record is in the layout exactly once, as it was emitted.
- There is no record that nobody emitted.
- No half-written file is visible at any moment.
- Verify finds nothing: every file is sealed, in order, and matches the ledger.
- A new record passes after the faults stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from seam.emissions import did_of, emission, is_plain_run

from waybill.exporter import check
from waybill.exporter.relations import RELATIONS_SCHEMA
from waybill.facets import EVIDENCE, ProvenanceRecord, record_key
from waybill.facets.arrow import SCHEMA, from_table
from waybill.facets.merge_rule import RecordKey
from waybill.lineage import find
from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    from seam.ledger import Ledger

FRESH_AFTER_RESTART = 950


def check_visible(root: Path) -> None:
    """Check that every file that a glob finds is whole, at any moment."""
    for path in root.rglob("*.parquet"):
        if not path.name.startswith("."):
            try:
                table = pq.read_table(path, partitioning=None)
            except (OSError, pa.ArrowException) as error:
                raise AssertionError(f"half a file is visible: {path} ({error})") from error
            match path.relative_to(root).parts[:2]:
                case ["provenance", "relations"]:
                    assert table.schema.names == RELATIONS_SCHEMA.names, path
                case ["provenance", part] if part != "keys":
                    assert table.num_columns == len(SCHEMA), path


def recover_and_check(settings: Settings, ledger: Ledger, *, fresh_number: int = FRESH_AFTER_RESTART) -> None:
    """Restart after the faults, and compare the result with what the processes reported.

    Args:
        settings: of the home that was hit.
        ledger: the reports of its processes; emissions made here are added.
        fresh_number: the number of the emission that must pass now.
    """
    assert not ledger.faults, "\n".join(ledger.faults)
    check_visible(settings.root)
    _, invented = compare(find(settings.root) if settings.root.is_dir() else [], ledger)
    assert not invented, f"nobody emitted {invented}"
    check_verified(settings.root, "left")
    journal = Journal(settings.home)
    fresh = emission(fresh_number)
    journal.append_many(fresh.items)
    check_journal(journal)
    report = flush(settings)
    assert not report.problems, report.problems
    journal.close()
    ledger.offered.append(fresh.number)
    ledger.acknowledged.add(fresh.number)
    check_layout(settings.root, ledger)


def check_journal(journal: Journal) -> None:
    """Check that each entry is there once, and that times never decrease."""
    entries = journal.read(0, limit=1_000_000)
    bodies = Counter((entry.kind, entry.body) for entry in entries if entry.kind is not Kind.MARK)
    assert set(bodies.values()) <= {1}, "an entry is in the journal twice"
    times = [entry.received_ms for entry in entries]
    assert times == sorted(times)


def check_verified(root: Path, *kinds: str) -> None:
    """Check that verify finds nothing, except findings of these kinds."""
    findings = [one for checked in check(root) for one in checked.findings if one.kind not in kinds]
    assert not findings, f"what verify finds: {findings}"


def check_layout(root: Path, ledger: Ledger) -> None:
    """Check after a flush that the compacted files, read by glob, contain exactly the right rows."""
    check_visible(root)
    left = [path for path in root.glob("provenance/raw/**/*") if path.is_file()]
    assert not left, f"a flush left {left}"
    strays = [path for path in root.rglob(".*") if path.is_file() and not path.match("*.lock")]
    assert not strays, f"what was being written is left: {strays}"
    check_verified(root)
    found = read_compacted(root)
    lost, invented = compare(found, ledger)
    assert not lost, f"acknowledged and lost: {lost}"
    assert not invented, f"nobody emitted {invented}"


def read_compacted(root: Path) -> list[ProvenanceRecord]:
    """Every row of every compacted file."""
    paths = sorted(root.glob("provenance/compacted/*/*/*.parquet"))
    return [
        record for path in paths for record in from_table(pq.read_table(path, partitioning=None).cast(SCHEMA))
    ]


def compare(
    found: Iterable[ProvenanceRecord], ledger: Ledger
) -> tuple[list[ProvenanceRecord], list[ProvenanceRecord]]:
    """Find the records that are missing, and those that nobody emitted, second copies among them.

    A run whose end was possibly not kept may have an inferred end once its program is gone.
    """
    due = ledger.acknowledged
    counts = Counter[RecordKey]()
    rows: dict[RecordKey, ProvenanceRecord] = {}
    unsure = {did_of(number) for number in ledger.offered if is_plain_run(number) and number not in due}
    for record in found:
        if record.did in unsure and EVIDENCE in (record.annotations or {}):
            continue
        counts[record_key(record)] += 1
        rows[record_key(record)] = record
    lost, allowed = [], Counter[RecordKey]()
    for number in ledger.offered:
        record = emission(number).record
        allowed[record_key(record)] = 1
        if number in due and rows.get(record_key(record)) != record:
            lost.append(record)
    invented = [rows[key] for key, count in counts.items() if count > allowed[key]]
    for number in ledger.offered:
        record = emission(number).record
        row = rows.get(record_key(record))
        if row is not None and row != record and row not in invented:
            invented.append(row)
    return lost, invented
