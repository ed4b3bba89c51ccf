"""Provenance records like those of a busy DeltaFi installation, generated from a seed.

A file takes 1.8 s in the median, with a long tail. Five systems share the load unevenly, and a few of
twenty sources bring most files. Nine of ten files complete; one in fifty is split, and its children follow
soon. Names, numbers and four annotations are as random as in reality, since the size of the Parquet files
depends on that.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets.arrow import SCHEMA

START_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
HOUR_MS: Final = 3_600_000

_SHARES: Final = (0.35, 0.25, 0.2, 0.15, 0.05)
_SYSTEMS: Final = ("deltafi-alpha-1", "deltafi-alpha-2", "deltafi-bravo", "deltafi-edge-07", "deltafi-test")
_FORMATS: Final = ("json", "xml", "csv.gz", "avro", "parquet")
_REGIONS: Final = ("us-east", "us-west", "eu-central", "ap-south", "sa-east", "af-north")
_STATES: Final = {"COMPLETE": 0.9, "ERROR": 0.04, "FILTERED": 0.03, "CANCELLED": 0.01, "SPLIT": 0.02}
_SOURCES: Final = 20
_TRANSFORMS: Final = 12
_SINKS: Final = 10
_CHILDREN: Final = 5
_CHILDREN_WITHIN: Final = 5_000


def records(
    count: int, *, hours: int, systems: int, repeats: float, seed: int, first_hour: int = 0
) -> pa.Table:
    """A table of `SCHEMA` in order of `completed`.

    Args:
        count: the number of different records.
        hours: the number of hours that their `completed` is spread over.
        systems: the number of systems that they come from, at most five.
        repeats: the share of records that come twice; every second repeat has another annotation.
        seed: the same seed gives the same records.
        first_hour: how many hours after `START_MS` the first of these is.
    """
    random = np.random.default_rng(seed)
    start_ms = START_MS + first_hour * HOUR_MS
    completed = np.sort(random.integers(start_ms, start_ms + hours * HOUR_MS, count))
    created = completed - np.minimum(random.lognormal(7.5, 1.2, count).astype(np.int64) + 5, 3_000_000)
    did = _uuids(created, random)
    source = np.minimum(random.zipf(1.3, count) - 1, 10**6) % _SOURCES
    state = random.choice(len(_STATES), count, p=list(_STATES.values()))
    has_sink = pa.array(state < 2)  # COMPLETE and ERROR  # noqa: PLR2004
    share = np.array(_SHARES[:systems])
    seconds = _texts(completed // 1_000)
    number = pc.utf8_lpad(_texts(random.integers(0, 10**8, count)), 8, "0")
    table = pa.Table.from_arrays(
        [
            did,
            _parents(did, state, random),
            _pick(_SYSTEMS, random.choice(systems, count, p=share / share.sum())),
            _pick([f"ds-{at:02}-ingest" for at in range(_SOURCES)], source),
            pc.binary_join_element_wise(
                _pick([f"feed-{at}_" for at in range(_SOURCES)], source),
                seconds,
                "_",
                number,
                _pick([f".{name}" for name in _FORMATS], random.integers(0, len(_FORMATS), count)),
                "",
            ),
            _transforms(source),
            pc.if_else(
                has_sink,
                _pick([f"sink-{at}" for at in range(_SINKS)], random.integers(0, _SINKS, count)),
                None,
            ),
            _pick(list(_STATES), state),
            pa.array(created).cast(SCHEMA.field("created").type),
            pa.array(completed).cast(SCHEMA.field("completed").type),
            _annotations(count, random),
        ],
        schema=SCHEMA,
    )
    return _with_repeats(table, int(count * repeats), random)


def _uuids(created_ms: np.ndarray, random: np.random.Generator) -> pa.Array:
    """UUIDs of version 7: 48 bits of time and 74 random bits."""
    octets = random.integers(0, 256, (len(created_ms), 16), dtype=np.uint8)
    for at in range(6):
        octets[:, at] = (created_ms >> (8 * (5 - at))) & 255
    octets[:, 6] = octets[:, 6] & 0x0F | 0x70
    octets[:, 8] = octets[:, 8] & 0x3F | 0x80
    digits = octets.tobytes().hex()
    texts = [digits[at : at + 32] for at in range(0, len(digits), 32)]
    return pa.array([f"{x[:8]}-{x[8:12]}-{x[12:16]}-{x[16:20]}-{x[20:]}" for x in texts])


def _parents(did: pa.Array, state: np.ndarray, random: np.random.Generator) -> pa.Array:
    split = len(_STATES) - 1
    parent = np.full(len(state), -1)
    for at in np.flatnonzero(state == split):
        children = at + 1 + random.integers(0, _CHILDREN_WITHIN, _CHILDREN)
        children = children[children < len(state)]
        parent[children[state[children] != split]] = at
    return did.take(pa.array(parent, mask=parent < 0))


def _transforms(source: np.ndarray) -> pa.Array:
    """Three transforms for each record, the same for all records of a source."""
    steps = np.stack([(source + at) % _TRANSFORMS for at in (0, 3, 7)], axis=1).ravel()
    texts = _pick([f"transform-{at:02}" for at in range(_TRANSFORMS)], steps)
    offsets = pa.array(np.arange(0, len(steps) + 1, 3, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, texts, type=SCHEMA.field("transforms").type)


def _annotations(count: int, random: np.random.Generator) -> pa.Array:
    batch = pc.utf8_lpad(_texts(random.integers(0, 10_000, count)), 5, "0")
    customer = _pick([f"customer-{at:02}" for at in range(50)], random.integers(0, 50, count))
    priority = _pick(("routine", "priority", "immediate"), random.choice(3, count, p=[0.8, 0.15, 0.05]))
    region = _pick(_REGIONS, random.integers(0, len(_REGIONS), count))
    columns = [batch, customer, priority, region]
    order = np.arange(4 * count).reshape(4, count).T.ravel()
    values = pa.concat_arrays(columns).take(pa.array(order))
    keys = _pick(("batchId", "customer", "priority", "region"), np.tile(np.arange(4), count))
    return pa.MapArray.from_arrays(pa.array(np.arange(0, 4 * count + 1, 4, dtype=np.int32)), keys, values)


def _with_repeats(table: pa.Table, count: int, random: np.random.Generator) -> pa.Table:
    """The table with some rows repeated, every second repeat with an annotation changed."""
    if not count:
        return table
    rows = np.sort(random.choice(table.num_rows, count, replace=False))
    same, other = table.take(pa.array(rows[::2])), table.take(pa.array(rows[1::2]))
    changed = [[*entries[:-1], ("resent", "yes")] for entries in other["annotations"].to_pylist()]
    at = table.column_names.index("annotations")
    other = other.set_column(
        at, SCHEMA.field("annotations"), pa.array(changed, SCHEMA.field("annotations").type)
    )
    return pa.concat_tables([table, same, other]).sort_by("completed").combine_chunks()


def _pick(texts: tuple[str, ...] | list[str], at: np.ndarray) -> pa.Array:
    return pa.array(list(texts)).take(pa.array(at))


def _texts(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())
