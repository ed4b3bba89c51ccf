"""Records as columns for many at once: what `decode_records` and `facet_records` give one by one.

For records that are sent as such, Arrow's own JSON reader fills the columns. Of what admission lets in it
reads nothing differently, but it refuses some of it, such as a key that comes twice: that is decoded one by
one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from waybill.facets.arrow import SCHEMA, to_table
from waybill.facets.folding import facet_records, final_state_of
from waybill.facets.record import (
    AFTER_LAST_MS,
    FIRST_MS,
    UNREADABLE,
    FinalState,
    decode_records,
    keep_annotations,
)

if TYPE_CHECKING:
    from waybill.facets.event import DeltaFile, RunEvent, RunFacets
    from waybill.facets.record import ProvenanceRecord

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_READ: Final = pj.ReadOptions(block_size=512 * 2**10)

_Item = TypeVar("_Item")


OnError = Callable[[int, Exception], None]
"""Called with the place and the error of each element that cannot be read; it is left out."""


def decode_table(
    bodies: Sequence[bytes], *, system_name: str, allowed: frozenset[str], on_error: OnError
) -> pa.Table:
    """Decode DeltaFi's JSON arrays of records, as admission let them in: `decode_records` as columns.

    Args:
        bodies: the arrays; many small ones together take no longer than a large one.
        system_name: the name for records that carry none.
        allowed: the annotation keys that are kept.
        on_error: see `OnError`.

    Returns:
        A table of `waybill.facets.arrow.SCHEMA`, in the order of the arrays.
    """
    keys = tuple(sorted(allowed))
    return _by_halves(
        bodies,
        lambda many: _decode_columns(many, system_name, keys),
        lambda body: _table_of(decode_records(body, system_name=system_name), allowed),
        on_error,
    )


def facet_table(
    events: Sequence[tuple[RunEvent, str]], *, allowed: frozenset[str], on_error: OnError
) -> pa.Table:
    """Return what terminal events with the facet record by themselves: `facet_records` as columns.

    Args:
        events: each a terminal one with the facet, and the name for a record that carries none.
        allowed: the annotation keys that are kept.
        on_error: see `OnError`.

    Returns:
        A table of `waybill.facets.arrow.SCHEMA`, in the order of the events.
    """
    keys = tuple(sorted(allowed))
    return _by_halves(
        events,
        lambda many: _facet_columns(many, keys),
        lambda one: _table_of(facet_records(one[0], system_name=one[1]), allowed),
        on_error,
    )


def _by_halves(
    items: Sequence[_Item],
    together: Callable[[Sequence[_Item]], pa.Table],
    alone: Callable[[_Item], pa.Table],
    on_error: OnError,
) -> pa.Table:
    """All items together, else by halves, so that one that is rare or wrong costs its neighbours little."""
    try:
        return together(items)
    except (pa.ArrowException, *UNREADABLE):
        pass
    if len(items) == 1:
        try:
            return alone(items[0])
        except UNREADABLE as error:
            on_error(0, error)
            return SCHEMA.empty_table()
    middle = len(items) // 2
    first = _by_halves(items[:middle], together, alone, on_error)
    rest = _by_halves(items[middle:], together, alone, lambda at, error: on_error(middle + at, error))
    return pa.concat_tables([first, rest])


def _table_of(records: Iterable[ProvenanceRecord], allowed: frozenset[str]) -> pa.Table:
    return to_table([keep_annotations(record, allowed) for record in records])


def _decode_columns(bodies: Sequence[bytes], system_name: str, keys: tuple[str, ...]) -> pa.Table:
    lines = [line for body in bodies if (line := _lines(body))]
    if not lines:
        return SCHEMA.empty_table()
    parsing = _parsing(keys, one_line_each=not any(map(_has_breaks, bodies)))
    sent = pj.read_json(pa.BufferReader(b"\n".join(lines)), _READ, parsing).combine_chunks()
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
        "annotations": _maps(sent["annotations"].combine_chunks().flatten(), keys)
        if keys
        else pa.nulls(sent.num_rows),
    }
    table = pa.table(columns).cast(SCHEMA)
    _check(table)
    return table


def _facet_columns(events: Sequence[tuple[RunEvent, str]], keys: tuple[str, ...]) -> pa.Table:
    if not events:
        return SCHEMA.empty_table()
    rows = [_facet_row(event, name) for event, name in events]
    *columns, ended, created, completed, annotations = zip(*rows, strict=True)
    _instants(ended)  # it must be readable though nothing of it may be in the record
    values = [
        pa.array([None if said is None else said.get(key) for said in annotations], pa.string())
        for key in keys
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=False)]
    arrays += [_instants(created), _instants(completed)]
    arrays.append(_maps(values, keys) if keys else pa.nulls(len(rows), SCHEMA.field("annotations").type))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _facet_row(event: RunEvent, system_name: str) -> tuple[Any, ...]:
    facet = cast("DeltaFile", cast("RunFacets", event.run.facets).delta_file)
    ended = event.eventTime
    return (
        facet.did,
        facet.parentDid or None,
        facet.systemName or system_name,
        facet.dataSource or event.job.name,
        facet.filename or "",
        facet.transforms or (),
        facet.dataSink or None,
        facet.finalState or final_state_of(event.eventType),
        ended,
        ended if facet.created is None else facet.created,
        ended if facet.completed is None else facet.completed,
        facet.annotations,
    )


def _instants(texts: Sequence[str]) -> pa.Array:
    instants = pa.array(texts, pa.string()).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    instants = pc.divide(instants, 1_000)
    if pc.any(_is_outside(instants)).as_py():
        raise pa.ArrowInvalid("there is an instant out of range")
    return instants.cast(SCHEMA.field("created").type)


def _lines(body: bytes) -> bytes:
    """The elements of an array behind one another, each begun on a line of its own."""
    if body[:1] == b"[" and body[-1:] == b"]" and b"}, {" not in body and not _has_breaks(body):
        # Three times as fast. Where this is within a text or an element, what becomes of it is no JSON.
        return body[1:-1].replace(b"},{", b"}\n{")
    return b"\n".join(_ELEMENTS.decode(body))


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


def _maps(columns: Sequence[pa.Array], keys: Sequence[str]) -> pa.MapArray:
    """Annotations from a column for each key: maps in the order of the keys, none rather than empty."""
    rows, width = len(columns[0]), len(columns)
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
        pc.any(pc.invert(pc.is_in(table["final_state"], pa.array(list(FinalState), pa.string())))),
        *(pc.any(_is_outside(table[name].cast(pa.int64()))) for name in ("created", "completed")),
    ]
    required = (field.name for field in SCHEMA if not field.nullable)
    nulls = [table[name].null_count for name in required]
    steps = table["transforms"].combine_chunks().flatten().null_count
    if any(nulls) or steps or any(fault.as_py() for fault in faults):
        raise pa.ArrowInvalid("some of it is no record")


def _is_outside(instants: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.or_(pc.less(instants, FIRST_MS), pc.greater_equal(instants, AFTER_LAST_MS))
