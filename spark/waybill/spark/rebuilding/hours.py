"""Where a rebuild on Spark puts its hours: below a root, or in an object store; each is an executor's task.

Below a root an hour becomes raw files and these are compacted, as ever. For an object store that is done in a
folder of the executor's own, which is then exported: an hour that is there already is merged with.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, Protocol

import msgspec
import pyarrow as pa

from waybill.exporter import export, open_destination
from waybill.exporter.compaction import HourReport, RawWriter, as_sent, compact_hour
from waybill.exporter.ledger import recorded
from waybill.exporter.names import HOUR_MS, Hour, RawName, hour_of
from waybill.spark.rebuilding.job_store import FolderJobStore, JobStore, ObjectJobStore
from waybill.transport.files import Files

_RAW_ROWS_MAX: Final = 250_000
_PREFIX: Final = "hour-"


class Written(msgspec.Struct, frozen=True):
    """An hour that is where it belongs.

    Attributes:
        report: what became of it.
        records: how many records there were, before repeats are merged.
    """

    report: HourReport
    records: int


class HourWriting(Protocol):
    """One hour's records on their way."""

    hour: int

    def add(self, rows: pa.Table) -> None:
        """Add records, as a table of `waybill.facets.arrow.SCHEMA`."""

    def finish(self) -> Written:
        """Put the hour where it belongs."""


class HourTarget(Protocol):
    """Where the hours go; executors get a copy."""

    @property
    def kept(self) -> JobStore:
        """What is done."""

    def changing(self, hours: Collection[Hour]) -> contextlib.AbstractContextManager[None]:
        """Hold others off while these hours change."""

    def begin(self, hour: int) -> HourWriting:
        """Begin an hour, by its number since the epoch."""


class RootTarget(msgspec.Struct, frozen=True):
    """A root that the driver and the executors have at the same path.

    Attributes:
        root: the layout's root.
        node: the rebuild's own id in the names of raw files.
        kept: what is done.
    """

    root: Path
    node: str
    kept: FolderJobStore

    @contextlib.contextmanager
    def changing(self, hours: Collection[Hour]) -> Iterator[None]:
        """Have the root's turn, and keep its ledger."""
        files = Files()
        if not hours:
            yield
            return
        with recorded(self.root, files, hours) as changed:
            # A task that Spark had to repeat says only what its last attempt did: the files tell all.
            changed.certain = False
            yield

    def begin(self, hour: int) -> HourWriting:
        """Begin an hour below the root."""
        return _BelowRoot(self, hour)


class RemoteTarget(msgspec.Struct, frozen=True):
    """A folder of an object store.

    Attributes:
        url: see `waybill.exporter.open_destination`.
        kept: what is done.
    """

    url: str
    kept: ObjectJobStore

    def changing(self, hours: Collection[Hour]) -> contextlib.AbstractContextManager[None]:  # noqa: ARG002 - of the protocol
        """Each put is conditional, so nobody is held off."""
        return contextlib.nullcontext()

    def begin(self, hour: int) -> HourWriting:
        """Begin an hour in a folder of this executor's own."""
        return _InStore(self, hour)


def begin_hour(target: HourTarget, hour: int) -> HourWriting:
    """Begin an hour, by its number since the epoch, unless an earlier attempt has done it."""
    note = target.kept.open(_note_name(hour_of(hour * HOUR_MS)))
    if note is None:
        return target.begin(hour)
    with note:
        return _Done(hour, decode_written(note.read()))


def written_before(kept: JobStore) -> list[Written]:
    """The hours that an earlier rebuild of the same order has done."""
    found: list[Written] = []
    for name in kept.names(_PREFIX):
        if (note := kept.open(name)) is not None:
            with note:
                found.append(decode_written(note.read()))
    return found


class _Raw:
    """Raw files of one hour, which one task alone writes."""

    def __init__(self, root: Path, node: str, hour: int) -> None:
        self._root = root
        self._node = node
        self._hour = hour_of(hour * HOUR_MS)
        self._writer = RawWriter(root)
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0
        self._files = 0
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= _RAW_ROWS_MAX:
            self._write()

    def compact(self) -> Written:
        self._write()
        return Written(compact_hour(self._root, self._hour, Files(), node=self._node), self._rows)

    def _write(self) -> None:
        if not self._waiting:
            return
        self._files += 1
        # The numbers need be this hour's own only.
        self._writer.write_table(
            RawName(self._node, self._files, self._files), pa.concat_tables(self._waiting).combine_chunks()
        )
        self._rows += self._waiting_rows
        self._waiting, self._waiting_rows = [], 0


class _BelowRoot:
    def __init__(self, target: RootTarget, hour: int) -> None:
        self.hour = hour
        self._target = target
        self._raw = _Raw(target.root, target.node, hour)

    def add(self, rows: pa.Table) -> None:
        self._raw.add(rows)

    def finish(self) -> Written:
        return _noted(self._target.kept, self._raw.compact())


class _Done:
    def __init__(self, hour: int, written: Written) -> None:
        self.hour = hour
        self._written = written

    def add(self, rows: pa.Table) -> None:
        """They are there."""

    def finish(self) -> Written:
        return self._written


class _InStore:
    def __init__(self, target: RemoteTarget, hour: int) -> None:
        self.hour = hour
        self._target = target
        self._folder = tempfile.TemporaryDirectory(prefix="waybill-rebuild-")
        self._raw = _Raw(Path(self._folder.name), secrets.token_hex(6), hour)

    def add(self, rows: pa.Table) -> None:
        self._raw.add(rows)

    def finish(self) -> Written:
        with self._folder as folder:
            done = self._raw.compact()
            sent = export(Path(folder), open_destination(self._target.url))
        return _noted(self._target.kept, Written(as_sent(done.report, sent), done.records))


def _noted(kept: JobStore, done: Written) -> Written:
    """An hour, of which it is kept that it is done, if it is."""
    if done.report.failed is None and done.report.unreadable is None:
        with kept.writing(_note_name(done.report.hour)) as path:
            path.write_bytes(msgspec.json.encode(done))
    return done


def _note_name(hour: Hour) -> str:
    return f"{_PREFIX}{hour.day}{hour.hour}.json"


def decode_written(said: bytes) -> Written:
    """What `Written` became as JSON."""
    return _WRITTEN.decode(said)


def hour_number(hour: Hour) -> int:
    """Which hour since the epoch it is."""
    return hour.start_ms // HOUR_MS


_WRITTEN: Final = msgspec.json.Decoder(Written)
