"""The spill: runs on disk between reading and folding, divided into buckets by a hash of the run id.

Each part of a source makes one file. A run that is in several files is in the same bucket of each, so a
bucket can be folded without the others. For a run with the facet, only that fact is stored, because no
records are derived for it.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from waybill.facets import RunState
from waybill.facets.folding import Gathered

BUCKETS: Final = 64

StatesByRun = dict[str, RunState | None]
"""By run id, the folded state of its events; None: one of them carried the facet."""

_SCHEMA: Final = pa.schema([pa.field("run_id", pa.string()), pa.field("state", pa.binary())])
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_REPORT: Final = b"waybill.part"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(RunState)


def encode_state(state: RunState | None) -> bytes | None:
    """A run's state as bytes, also for a run with the facet, which is None."""
    return None if state is None else _ENCODER.encode(state)


def decode_state(encoded: bytes | None) -> RunState | None:
    """The inverse of `encode_state`."""
    return None if encoded is None else _DECODER.decode(encoded)


class GatheredRuns:
    """The states of runs, folded as their events arrive."""

    def __init__(self) -> None:
        self._runs: dict[str, Gathered | None] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run_id: str, state: RunState | None) -> None:
        """Fold some events of a run into its state."""
        if state is None:
            self._runs[run_id] = None
        elif (known := self._runs.setdefault(run_id, Gathered())) is not None:
            known.add(state)

    def states(self) -> StatesByRun:
        """By run, the folded state of all its events."""
        return {run_id: None if known is None else known.whole() for run_id, known in self._runs.items()}


class Spill:
    """Writes the runs of one part; each round adds one batch to every bucket."""

    def __init__(self) -> None:
        self.state_bytes = [0] * BUCKETS
        """By bucket, how many bytes there are to fold."""
        self._batches: list[pa.RecordBatch] = []

    def add(self, runs: Mapping[str, RunState | None]) -> None:
        """Add one round."""
        buckets: list[tuple[list[str], list[bytes | None]]] = [([], []) for _ in range(BUCKETS)]
        for run_id, state in runs.items():
            bucket = zlib.crc32(run_id.encode("utf-8", "surrogatepass")) % BUCKETS
            ids, states = buckets[bucket]
            ids.append(run_id)
            states.append(encoded := encode_state(state))
            if encoded is not None:
                self.state_bytes[bucket] += len(encoded)
        self._batches += [
            pa.record_batch([pa.array(ids, pa.string()), pa.array(states, pa.binary())], schema=_SCHEMA)
            for ids, states in buckets
        ]

    def encode(self, report: bytes) -> pa.Buffer:
        """The complete file, with the report of its part."""
        sink = pa.BufferOutputStream()
        schema = _SCHEMA.with_metadata({_REPORT: report})
        with pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
            for batch in self._batches:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        return sink.getvalue()


def read_report(file: io.BufferedIOBase) -> bytes:
    """Read the report of a part from its file."""
    with pa.ipc.open_file(file) as reader:
        report: bytes = reader.schema.metadata[_REPORT]
        return report


def read_bucket(file: io.BufferedIOBase, bucket: int) -> Iterator[tuple[str, RunState | None]]:
    """Read the runs in one bucket of a part's file; a run may come several times."""
    with pa.ipc.open_file(file) as reader:
        for number in range(bucket, reader.num_record_batches, BUCKETS):
            batch = reader.get_batch(number)
            for run_id, state in zip(batch["run_id"].to_pylist(), batch["state"].to_pylist(), strict=True):
                yield run_id, decode_state(state)
