"""The last stage of a rebuild on Spark: each hour is written by one task.

Below a root an hour becomes raw files, which are compacted as usual. For an object store this happens in a
folder of the executor's own, which is then exported; an hour that the store has already is merged.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from waybill.exporter import export, open_destination
from waybill.exporter.compaction import HourReport, RawWriter, as_exported, compact_hour
from waybill.exporter.exporting import BlobStore
from waybill.exporter.ledger import recorded
from waybill.exporter.names import HOUR_MS, Hour, RawName, hour_of
from waybill.transport.files import Files

_RAW_ROWS_MAX: Final = 250_000
_PREFIX: Final = "hour-"


class WrittenHour(msgspec.Struct, frozen=True):
    """An hour that was written, and how many records there were before repeats were merged."""

    report: HourReport
    records: int


decode_written: Final = msgspec.json.Decoder(WrittenHour).decode


class HourTarget(msgspec.Struct, frozen=True):
    """Where the hours go; executors get a copy.

    Attributes:
        root: a folder that the driver and the executors have at the same path, or the URL of one in an object
            store.
        node: the job's own id in the names of raw files.
        store: where the job keeps its progress.
    """

    root: Path | str
    node: str
    store: BlobStore

    @contextlib.contextmanager
    def changing(self, hours: Collection[Hour]) -> Iterator[None]:
        """Lock the root, and record in its ledger that these hours change; an object store needs neither."""
        if isinstance(self.root, str) or not hours:
            yield
            return
        with recorded(self.root, Files(), hours) as changed:
            # A task that Spark had to repeat reports only its last attempt, so the ledger looks at the files.
            changed.certain = False
            yield

    def written_before(self) -> list[WrittenHour]:
        """The hours that an earlier attempt of this job has written."""
        names = [name for name in self.store.names() if name.startswith(_PREFIX)]
        return [decode_written(found[0]) for name in names if (found := self.store.read(name))]


class HourWriter:
    """Writes one hour, given by its number since the epoch, unless an earlier attempt has done so."""

    def __init__(self, target: HourTarget, hour: int) -> None:
        self._hour = hour_of(hour * HOUR_MS)
        self._target = target
        self._name = f"{_PREFIX}{self._hour.day}{self._hour.hour}.json"
        found = target.store.read(self._name)
        self._before = decode_written(found[0]) if found else None
        self._staging = contextlib.ExitStack()
        if isinstance(target.root, Path):
            self._root, self._node = target.root, target.node
        else:
            folder = self._staging.enter_context(tempfile.TemporaryDirectory(prefix="waybill-rebuild-"))
            self._root, self._node = Path(folder), secrets.token_hex(6)
        self._writer = RawWriter(self._root)
        self._pending: list[pa.Table] = []
        self._pending_rows = self._rows = self._files = 0

    def add(self, rows: pa.Table) -> None:
        """Add records, as a table of `waybill.facets.arrow.SCHEMA`."""
        if self._before is not None:
            return
        self._pending.append(rows)
        self._pending_rows += rows.num_rows
        if self._pending_rows >= _RAW_ROWS_MAX:
            self._write()

    def finish(self) -> WrittenHour:
        """Write the hour, and record in the job that this is done."""
        with self._staging:
            if self._before is not None:
                return self._before
            self._write()
            report = compact_hour(self._root, self._hour, Files(), node=self._node)
            if isinstance(self._target.root, str):
                report = as_exported(report, export(self._root, open_destination(self._target.root)))
        written = WrittenHour(report, self._rows)
        if report.failed is None and report.unreadable is None:
            with self._target.store.writing(self._name) as path:
                path.write_bytes(msgspec.json.encode(written))
        return written

    def _write(self) -> None:
        if not self._pending:
            return
        self._files += 1
        # One task alone writes this hour, so the numbers need only differ within it.
        self._writer.write_table(
            RawName(self._node, self._files, self._files), pa.concat_tables(self._pending).combine_chunks()
        )
        self._rows += self._pending_rows
        self._pending, self._pending_rows = [], 0
