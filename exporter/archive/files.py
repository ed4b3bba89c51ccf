"""Archived entries as Parquet: the schema of the files below ``events/``, and how to write and read them.

    events/YYYYMMDD/HH/<node>-<first>-<last>.parquet

Hours are UTC hours of arrival. A row is one entry of the journal, of any kind. `body` is the entry itself;
the other columns are for filtering and for people.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.facets import DatasetEvent, RunEvent, parse_instant_us
from waybill.transport.journal import Entry, Kind

from ..directory import names
from ..names import EVENTS, Hour, RawName, events_folder, hour_of, parse_hour
from ..parquet import DAMAGED, FORMAT, check_format, fill_in, seal_in, to_be_sealed

EVENTS_SCHEMA: Final = pa.schema(
    [
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("node", pa.string(), nullable=False),
        pa.field("arrived", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("event_time", pa.timestamp("us", tz="UTC")),
        pa.field("run_id", pa.string()),
        pa.field("event_type", pa.string()),
        pa.field("job_namespace", pa.string()),
        pa.field("job_name", pa.string()),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("system_name", pa.string(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)
"""The columns of the archive, in order. `node` is the journal's id, `system_name` the stamped name."""

ENTRIES_MAX: Final = 50_000
"""The maximum number of entries in a file."""
BYTES_MAX: Final = 32 * 2**20
"""Once a file's entries reach this total size, it gets no more."""

_LEVEL: Final = 1  # of zstd: level 3 takes 50% longer, and is no better for data as repetitive as events
_DICTIONARY: Final = ["node", "event_type", "job_namespace", "job_name", "kind", "system_name"]
_ENCODING: Final = {
    "sequence": "DELTA_BINARY_PACKED",
    "arrived": "DELTA_BINARY_PACKED",
    "event_time": "DELTA_BINARY_PACKED",
    "run_id": "PLAIN",
    "body": "PLAIN",
}
_ROWS_READ: Final = 4_096
_ROW_GROUP: Final = 16_384
_FIRST_HOUR: Final = Hour("00000000", "00")
_LAST_HOUR: Final = Hour("99999999", "99")


class ArchivedEntry(NamedTuple):
    """An entry as the columns of the archive show it, in their order and without the node."""

    seq: int
    received_ms: int
    event_time_us: int | None
    run_id: str | None
    event_type: str | None
    job_namespace: str | None
    job_name: str | None
    kind: str
    system_name: str
    body: bytes

    @property
    def is_flush(self) -> bool:
        """Whether it is the mark of a flush."""
        return self.kind == Kind.MARK.name and self.body == b"flush"

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """What the archive keeps of an entry of the journal."""
        event = entry.event
        run = event if isinstance(event, RunEvent) else None
        job = None if event is None or isinstance(event, DatasetEvent) else event.job
        return cls(
            entry.seq,
            entry.received_ms,
            None if event is None else _instant_us(event.eventTime),
            None if run is None else run.run.runId,
            None if run is None else str(run.eventType),
            None if job is None else job.namespace,
            None if job is None else job.name,
            entry.kind.name,
            entry.system_name,
            entry.body,
        )


def arrival_hour(entry: Entry | ArchivedEntry) -> Hour:
    """The hour that an entry is filed under."""
    return hour_of(entry.received_ms)


def folder_hour(path: Path) -> Hour:
    """The hour that the entries of an archived file are filed under, by its folder."""
    return Hour(path.parent.parent.name, path.parent.name)


def encode_entries(node: str, entries: Sequence[ArchivedEntry], before: str | None) -> tuple[memoryview, str]:
    """Encode a journal's entries, in order, as one sealed file; return its bytes and its seal.

    The same entries give the same bytes. `before` is the previous file's seal.
    """
    seqs, *columns, bodies = zip(*entries, strict=True)
    columns = [seqs, (node,) * len(entries), *columns]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, EVENTS_SCHEMA, strict=False)]
    arrays.append(_joined(bodies))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        EVENTS_SCHEMA,
        compression="zstd",
        compression_level=_LEVEL,
        use_dictionary=_DICTIONARY,
        column_encoding=_ENCODING,
        store_schema=False,
    ) as writer:
        writer.write_table(pa.Table.from_arrays(arrays, schema=EVENTS_SCHEMA), row_group_size=_ROW_GROUP)
        writer.add_key_value_metadata({**FORMAT, **to_be_sealed(before)})
    return fill_in(sink.getvalue())


def _joined(bodies: Sequence[bytes]) -> pa.BinaryArray:
    """Make an array of bodies with one copy; `pa.array` copies large bodies repeatedly as it grows."""
    ends = itertools.accumulate(map(len, bodies), initial=0)
    offsets = pa.array(ends, pa.int32(), size=len(bodies) + 1).buffers()[1]
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(bodies), [None, offsets, pa.py_buffer(b"".join(bodies))]
    )


def last_seal(root: Path, node: str, upto: int) -> str | None:
    """The seal of a journal's last file up to a sequence number, if there is one that can be read."""
    for day in reversed(list(names(root / EVENTS))):
        for hour in reversed(list(names(root / EVENTS / day))):
            folder = root / EVENTS / day / hour
            found = [name for name in map(RawName.parse, names(folder)) if name and name.node == node]
            if before := [name for name in found if name.last <= upto]:
                try:
                    return seal_in(pq.read_metadata(folder / str(max(before))).metadata)
                except DAMAGED:
                    return None  # `verify` reports it
    return None


def read_entries(file: Path | bytes, *, run_ids: Collection[str] | None = None) -> Iterator[list[Entry]]:
    """The entries of an archive file, given by path or bytes, in batches that fit into memory.

    With `run_ids`, only entries of these runs; little more than the ids is read of other entries.

    Raises:
        FileNotFoundError: the file does not exist.
        parquet.DAMAGED: it is not a readable file of the archive.
    """
    with pq.ParquetFile(pa.BufferReader(file) if isinstance(file, bytes) else file) as archived:
        check_format(archived.metadata.metadata)
        columns = ["sequence", "arrived", "kind", "system_name", "body"]
        groups = None if run_ids is None else _groups_of(archived, run_ids)
        columns += [] if run_ids is None else ["run_id"]
        for batch in archived.iter_batches(_ROWS_READ, row_groups=groups, columns=columns, use_threads=False):
            if run_ids is not None:
                batch = batch.filter(_is_of(batch.column("run_id"), run_ids))  # noqa: PLW2901 - the rest
            arrived = batch.column("arrived").cast(pa.int64()).to_pylist()
            rest = (batch.column(name).to_pylist() for name in ("kind", "system_name", "body"))
            yield [
                Entry(seq, received_ms, Kind[kind], system_name, body)
                for seq, received_ms, kind, system_name, body in zip(
                    batch.column("sequence").to_pylist(), arrived, *rest, strict=True
                )
            ]


def read_run_ids(path: Path) -> set[str]:
    """The ids of the runs with entries in an archive file.

    Raises:
        FileNotFoundError: the file does not exist.
        parquet.DAMAGED: it is not a readable file of the archive.
    """
    with pq.ParquetFile(path) as archived:
        found = pc.unique(archived.read(["run_id"], use_threads=False)["run_id"]).to_pylist()
    return {run_id for run_id in found if run_id is not None}


def _groups_of(file: pq.ParquetFile, run_ids: Collection[str]) -> list[int]:
    """The row groups with entries of some runs."""
    return [
        group
        for group in range(file.num_row_groups)
        if pc.any(_is_of(file.read_row_group(group, ["run_id"])["run_id"], run_ids)).as_py()
    ]


def _is_of(column: pa.Array, run_ids: Collection[str]) -> pa.Array:
    return pc.is_in(column, pa.array(sorted(run_ids), pa.string()))


def archived_files(
    root: Path, first: Hour = _FIRST_HOUR, last: Hour = _LAST_HOUR
) -> list[tuple[RawName, Path]]:
    """The archive files of some hours, in order of hour, node and sequence."""
    days = [day for day in names(root / EVENTS) if first.day <= day <= last.day]
    hours = (hour for day in days for name in names(root / EVENTS / day) if (hour := parse_hour(day, name)))
    folders = (root / events_folder(hour) for hour in hours if first <= hour <= last)
    return [
        (raw, folder / str(raw))
        for folder in folders
        for raw in sorted(filter(None, map(RawName.parse, names(folder))))
    ]


def _instant_us(text: str) -> int | None:
    try:
        return parse_instant_us(text)
    except ValueError:
        return None
