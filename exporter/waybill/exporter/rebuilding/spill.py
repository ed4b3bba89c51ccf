"""Runs on disk between the reading and the folding, cut by a hash of the run id.

Each part of a source leaves one file. A run that is in several files is in the same bucket of each, so a
bucket is folded without the others; what is known of a run that carries the facet is only that it does, since
nothing is derived then.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from waybill.facets import RunState, merge_states
from waybill.transport.files import Files, publish

BUCKETS: Final = 64

StatesByRun = dict[str, RunState | None]
"""By run id what its events say together; None: one of them carried the facet."""

_SCHEMA: Final = pa.schema([pa.field("run_id", pa.string()), pa.field("state", pa.binary())])
_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
_REPORT: Final = b"waybill.part"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(RunState)


def encode_state(state: RunState | None) -> bytes | None:
    """A run's state as bytes; None for one that carries the facet."""
    return None if state is None else _ENCODER.encode(state)


def decode_state(encoded: bytes | None) -> RunState | None:
    """The way back."""
    return None if encoded is None else _DECODER.decode(encoded)


def add_run(runs: StatesByRun, run_id: str, state: RunState | None) -> None:
    """Merge what is known of a run."""
    known = runs.get(run_id, state)
    runs[run_id] = None if known is None or state is None else merge_states(known, state)


class Spill:
    """The runs of one part, on their way to its file; rounds of `BUCKETS` batches."""

    def __init__(self) -> None:
        self.state_bytes = [0] * BUCKETS
        """By bucket, how much there is to be folded."""
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

    def publish(self, files: Files, path: Path, report: bytes) -> None:
        """Write the file, with the report of its part; it is there whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        sink = pa.BufferOutputStream()
        schema = _SCHEMA.with_metadata({_REPORT: report})
        with pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
            for batch in self._batches:
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
        publish(files, path, sink.getvalue())


def read_report(path: Path) -> bytes | None:
    """The report of a part whose file is there; None when it is not."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            report: bytes = reader.schema.metadata[_REPORT]
            return report
    except FileNotFoundError:
        return None


def read_bucket(path: Path, bucket: int) -> Iterator[tuple[str, RunState | None]]:
    """The runs of one bucket of a part's file; one may come several times."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        for at in range(bucket, reader.num_record_batches, BUCKETS):
            batch = reader.get_batch(at)
            for run_id, state in zip(batch["run_id"].to_pylist(), batch["state"].to_pylist(), strict=True):
                yield run_id, decode_state(state)
