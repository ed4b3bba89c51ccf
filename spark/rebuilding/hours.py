"""The last stage of a rebuild on Spark: each hour is written by one task.

Below a root an hour becomes raw files, which are compacted as usual. For an object store this happens in a
local folder of the executor, which is then exported; an hour that the store already has is merged.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter import export, open_destination
from waybill.exporter.compaction import HourReport, RawWriter, as_exported, compact_hour
from waybill.exporter.exporting import BlobStore
from waybill.exporter.ledger import hold_against_ledger, recorded
from waybill.exporter.names import HOUR_MS, Hour, RawName, hour_of
from waybill.facets import AnnotationRule
from waybill.transport.files import Files

if TYPE_CHECKING:
    import pyarrow as pa

_RAW_ROWS_MAX: Final = 250_000
_PREFIX: Final = "hour-"


class WrittenHour(msgspec.Struct, frozen=True):
    """An hour that was written, and how many records there were before repeats were merged."""

    report: HourReport
    records: int


decode_written: Final = msgspec.json.Decoder(WrittenHour).decode


class HourTarget(msgspec.Struct, frozen=True):
    """Where the hours are written, and where the job stores its progress; executors get a copy.

    The root is a folder that the driver and the executors have at the same path, or the URL of one in an
    object store. The node is the job's own id in the names of raw files. The rule is that of the rows.
    """

    root: Path | str
    node: str
    rule: AnnotationRule
    store: BlobStore

    @contextlib.contextmanager
    def changing(self, hours: Collection[Hour]) -> Iterator[None]:
        """Lock the root, and record in its ledger that these hours change; an object store needs neither."""
        if isinstance(self.root, str) or not hours:
            yield
            return
        with recorded(self.root, Files(), hours, keeps=True) as changed:
            hold_against_ledger(self.root, Files(), hours, changed)
            # A retried task reports only its last attempt, so the ledger checks the files.
            changed.certain = False
            yield

    def written_before(self) -> list[WrittenHour]:
        """The hours that an earlier attempt of this job wrote."""
        names = [name for name in self.store.names() if name.startswith(_PREFIX)]
        return [decode_written(found[0]) for name in names if (found := self.store.read(name))]


def write_hour(target: HourTarget, number: int, tables: Iterable[pa.Table]) -> WrittenHour:
    """Write an hour, given by its number since the epoch, unless an earlier attempt has done so.

    Its records come as tables of `waybill.facets.arrow.SCHEMA`.
    """
    hour = hour_of(number * HOUR_MS)
    name = f"{_PREFIX}{hour.day}{hour.hour}.json"
    if found := target.store.read(name):
        return decode_written(found[0])
    with contextlib.ExitStack() as staging:
        if isinstance(target.root, Path):
            root, node = target.root, target.node
        else:
            folder = staging.enter_context(tempfile.TemporaryDirectory(prefix="waybill-rebuild-"))
            root, node = Path(folder), secrets.token_hex(6)
        records = _write_raws(root, node, target.rule, tables)
        report = compact_hour(root, hour, Files(), nodes=[node])
        if isinstance(target.root, str):
            report = as_exported(report, export(root, open_destination(target.root)))
    written = WrittenHour(report, records)
    if report.failed is None and report.unreadable is None:
        with target.store.writing(name) as path:
            path.write_bytes(msgspec.json.encode(written))
    return written


def _write_raws(root: Path, node: str, rule: AnnotationRule, tables: Iterable[pa.Table]) -> int:
    """Write raw files of about `_RAW_ROWS_MAX` rows each; returns their total number of rows."""
    writer = RawWriter(root, rule=rule)
    pieces: list[pa.Table] = []
    rows = written_rows = files = 0

    def write() -> None:
        nonlocal files, written_rows
        files += 1
        # Only one task writes this hour, so the numbers need only differ within it.
        writer.write_tables(RawName(node, files, files), pieces)
        written_rows = rows
        pieces.clear()

    for table in tables:
        pieces.append(table)
        rows += table.num_rows
        if rows - written_rows >= _RAW_ROWS_MAX:
            write()
    if pieces:
        write()
    return rows
