"""Records decoded as columns: what `decode_records` gives one by one, for many at once.

Arrow's own JSON reader fills the columns. Of what admission lets in it reads nothing differently, but it
refuses some of it, such as a key that comes twice: that is decoded one by one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from waybill.facets.arrow import SCHEMA, to_table
from waybill.facets.record import AFTER_LAST_MS, FIRST_MS, FinalState, decode_records, keep_annotations

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_READ: Final = pj.ReadOptions(block_size=512 * 2**10)
_UNREADABLE: Final = (ValueError, msgspec.MsgspecError, RecursionError)
_STATES: Final = pa.array([state.value for state in FinalState])


def decode_table(
    bodies: Sequence[bytes],
    *,
    system_name: str,
    allowed: frozenset[str],
    on_error: Callable[[int, Exception], None],
) -> pa.Table:
    """Decode DeltaFi's JSON arrays of records, as admission let them in: `decode_records` as columns.

    Args:
        bodies: the arrays; many small ones together take no longer than a large one.
        system_name: the name for records that carry none.
        allowed: the annotation keys that are kept.
        on_error: called with the place and the error of each body that `decode_records` raises for; it is
            left out.

    Returns:
        A table of `waybill.facets.arrow.SCHEMA`, in the order of the arrays.
    """
    try:
        return _decode_columns(bodies, system_name, tuple(sorted(allowed)))
    except (pa.ArrowException, *_UNREADABLE):
        pass
    if len(bodies) > 1:
        # So that one that is rare or wrong costs its neighbours little.
        middle = len(bodies) // 2
        halves = (
            decode_table(half, system_name=system_name, allowed=allowed, on_error=on_error_of)
            for half, on_error_of in (
                (bodies[:middle], on_error),
                (bodies[middle:], lambda at, error: on_error(middle + at, error)),
            )
        )
        return pa.concat_tables(halves)
    try:
        records = decode_records(bodies[0], system_name=system_name)
    except _UNREADABLE as error:
        on_error(0, error)
        return SCHEMA.empty_table()
    return to_table([keep_annotations(record, allowed) for record in records])


def _decode_columns(bodies: Sequence[bytes], system_name: str, keys: tuple[str, ...]) -> pa.Table:
    elements = [element for body in bodies for element in _ELEMENTS.decode(body)]
    if not elements:
        return SCHEMA.empty_table()
    parsing = _parsing(keys, one_line_each=not any(map(_has_breaks, bodies)))
    sent = pj.read_json(pa.BufferReader(b"\n".join(elements)), _READ, parsing).combine_chunks()
    sent.validate(full=True)
    columns = {
        "did": sent["did"],
        "parent_did": _null_for_empty(sent["parentDid"]),
        "system_name": pc.fill_null(_null_for_empty(sent["systemName"]), system_name),
        "data_source": pc.fill_null(sent["dataSource"], ""),
        "filename": pc.fill_null(sent["filename"], ""),
        "transforms": _lists(sent["transforms"].combine_chunks()),
        "data_sink": _null_for_empty(sent["dataSink"]),
        "final_state": sent["finalState"],
        "created": sent["created"],
        "completed": sent["completed"],
        "annotations": _maps(sent["annotations"].combine_chunks(), keys) if keys else pa.nulls(sent.num_rows),
    }
    table = pa.table(columns).cast(SCHEMA)
    _check(table)
    return table


def _has_breaks(body: bytes) -> bool:
    """Whether an element may go over several lines."""
    return b"\n" in body or b"\r" in body


@functools.lru_cache(maxsize=16)
def _parsing(keys: tuple[str, ...], *, one_line_each: bool) -> pj.ParseOptions:
    texts = ("did", "parentDid", "systemName", "dataSource", "filename", "dataSink", "finalState")
    types = dict.fromkeys(texts, pa.string()) | dict.fromkeys(("created", "completed"), pa.int64())
    types["transforms"] = SCHEMA.field("transforms").type
    types["annotations"] = pa.struct(dict.fromkeys(keys, pa.string()))
    return pj.ParseOptions(
        explicit_schema=pa.schema(types),
        newlines_in_values=not one_line_each,
        unexpected_field_behavior="ignore",
    )


def _null_for_empty(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(texts, ""), None, texts)


def _lists(lists: pa.ListArray) -> pa.ListArray:
    """Lists, empty ones for those that are absent."""
    if not lists.null_count:
        return lists
    # What stands behind an absent list is nothing, so its offsets are those of an empty one.
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type)


def _maps(values: pa.StructArray, keys: Sequence[str]) -> pa.MapArray:
    """Annotations from a field for each key: maps in the order of the keys, none rather than empty."""
    columns = values.flatten()
    rows, width = len(values), len(columns)
    # Row by row, the place of each value in the columns behind one another.
    cells = pa.arange(0, rows * width)
    row = pc.divide(cells, width)
    column = pc.subtract(cells, pc.multiply(row, width))
    texts = pc.take(pa.concat_arrays(columns), pc.add(pc.multiply(column, rows), row))
    present = pc.is_valid(texts)
    names = pc.take(pa.array(keys, pa.string()), pc.filter(column, present))
    counts = functools.reduce(pc.add, (pc.cast(one.is_valid(), pa.int32()) for one in columns))
    ends = pc.cumulative_sum(counts)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    is_none = pc.equal(counts, 0)
    return pa.MapArray.from_arrays(offsets, names, pc.filter(texts, present), mask=is_none)


def _check(table: pa.Table) -> None:
    """Leave what no record may hold to the decoder that says what is wrong with it."""
    faults = [
        pc.any(pc.equal(table["did"], "")),
        pc.any(pc.invert(pc.is_in(table["final_state"], _STATES))),
        *(pc.any(_is_outside(table[name])) for name in ("created", "completed")),
    ]
    required = (field.name for field in SCHEMA if not field.nullable)
    nulls = [table[name].null_count for name in required]
    steps = table["transforms"].combine_chunks().flatten().null_count
    if any(nulls) or steps or any(fault.as_py() for fault in faults):
        raise pa.ArrowInvalid("some of it is no record")


def _is_outside(instants: pa.ChunkedArray) -> pa.ChunkedArray:
    epoch_ms = instants.cast(pa.int64())
    return pc.or_(pc.less(epoch_ms, FIRST_MS), pc.greater_equal(epoch_ms, AFTER_LAST_MS))
