"""Many records at once, as columns, with the same results as `decode_records` and `facet_records`.

Arrow's own JSON reader fills the columns of records that are sent as such. It refuses some input that
admission accepts, such as a repeated key; such records are decoded one by one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from .annotations import RESERVED
from .arrow import SCHEMA, to_table
from .dids import CANONICAL, canonical_did
from .folding import facet_records, facet_values
from .record import (
    AFTER_LAST_MS,
    FIRST_MS,
    UNREADABLE,
    FinalState,
    SentRecord,
    decode_records,
    keep_annotations,
)

if TYPE_CHECKING:
    from .annotations import AnnotationRule
    from .event import RunEvent
    from .record import ProvenanceRecord

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_READ: Final = pj.ReadOptions(block_size=512 * 2**10)
_SENT_AS: Final = {field.name: field.encode_name for field in msgspec.structs.fields(SentRecord)}
_INSTANTS: Final = ("created", "completed")
_KEYS_MAX: Final = 64
"""The most keys of annotations, of any that senders give, that become columns together."""

_Item = TypeVar("_Item")


OnError = Callable[[int, Exception], None]
"""Called with the index and the error of each element that cannot be read; the element is left out."""


def decode_table(
    bodies: Sequence[bytes], *, system_name: str, rule: AnnotationRule, on_error: OnError
) -> pa.Table:
    """Decode DeltaFi's JSON arrays of records, as admission let them in: `decode_records` as columns.

    Many small arrays together take no longer than a large one. `system_name` stands in for an absent one; of
    the annotations, those are kept that the rule keeps. The table of `SCHEMA` is in the order of the arrays.
    """
    return _by_halves(
        bodies,
        lambda many: _decode_columns(many, system_name, _sent_keys(many, rule)),
        lambda body: _table_of(decode_records(body, system_name=system_name), rule),
        on_error,
    )


def facet_table(
    events: Sequence[tuple[RunEvent, str]], *, rule: AnnotationRule, on_error: OnError
) -> pa.Table:
    """Return the records of terminal events with the facet: `facet_records` as columns.

    Each event comes with the system name to use if it has none; `rule` and `on_error` are as for
    `decode_table`. The table of `SCHEMA` is in the order of the events.
    """
    return _by_halves(
        events,
        lambda many: _facet_columns(many, rule),
        lambda one: _table_of(facet_records(one[0], system_name=one[1]), rule),
        on_error,
    )


def _by_halves(
    items: Sequence[_Item],
    together: Callable[[Sequence[_Item]], pa.Table],
    alone: Callable[[_Item], pa.Table],
    on_error: OnError,
) -> pa.Table:
    """Read all items together, or else by halves, so that a rare or wrong one costs its neighbours little."""
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


def _table_of(records: Iterable[ProvenanceRecord], rule: AnnotationRule) -> pa.Table:
    return to_table([keep_annotations(record, rule) for record in records])


class _Annotated(msgspec.Struct, gc=False):
    annotations: dict[str, str | None] | None = None


_ANNOTATED: Final = msgspec.json.Decoder(list[_Annotated])


def _sent_keys(bodies: Sequence[bytes], rule: AnnotationRule) -> tuple[str, ...]:
    """The keys of a sender's annotations that are kept, sorted."""
    keys = set(rule.allowed)
    if rule.keeps_all:
        # Escaped, the name may be anywhere.
        told = [body for body in bodies if b'"annotations"' in body or b"\\" in body]
        sent = (one.annotations for body in told for one in _ANNOTATED.decode(body))
        keys = set().union(*filter(None, sent))
    return tuple(_limited(sorted(keys - RESERVED), rule))


def _limited(keys: list[str], rule: AnnotationRule) -> list[str]:
    """The keys of columns, each of which takes space in all rows; fewer elements have fewer of them."""
    if rule.keeps_all and len(keys) > _KEYS_MAX:
        raise pa.ArrowInvalid("there are too many keys for columns")
    return keys


def _decode_columns(bodies: Sequence[bytes], system_name: str, keys: tuple[str, ...]) -> pa.Table:
    lines = [line for body in bodies if (line := _lines(body))]
    if not lines:
        return SCHEMA.empty_table()
    parsing = _parsing(keys, one_line_each=not any(map(_has_breaks, bodies)))
    found = pj.read_json(pa.BufferReader(b"\n".join(lines)), _READ, parsing).combine_chunks()
    found.validate(full=True)
    columns = {name: found[_SENT_AS[name]] for name in SCHEMA.names}
    for name in ("parent_did", "system_name", "data_sink"):
        columns[name] = pc.if_else(pc.equal(columns[name], ""), None, columns[name])
    for name in ("did", "parent_did"):
        columns[name] = _canonical_dids(columns[name])
    for name, absent in (("system_name", system_name), ("data_source", ""), ("filename", "")):
        columns[name] = pc.fill_null(columns[name], absent)
    columns["transforms"] = _lists(columns["transforms"].combine_chunks())
    columns["annotations"] = _maps(columns["annotations"].combine_chunks().flatten(), keys, found.num_rows)
    table = pa.table(columns).cast(SCHEMA)
    _check(table)
    return table


def _canonical_dids(dids: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    is_other = pc.invert(pc.match_substring_regex(dids, f"^{CANONICAL}$"))
    if not pc.any(is_other).as_py():
        return dids
    others = dids.filter(is_other).to_pylist()
    return pc.replace_with_mask(
        dids.combine_chunks(),
        pc.fill_null(is_other, False).combine_chunks(),  # noqa: FBT003 - the value that stands for null
        pa.array(map(canonical_did, others), pa.string()),
    )


def _facet_columns(events: Sequence[tuple[RunEvent, str]], rule: AnnotationRule) -> pa.Table:
    if not events:
        return SCHEMA.empty_table()
    rows = (facet_values(event, system_name=name) for event, name in events)
    *columns, created, completed, annotations = zip(*rows, strict=True)
    _instants([event.eventTime for event, _ in events])  # Readable even where the facet has both instants.
    kept = [one and rule.kept_columns(one) for one in annotations]
    keys = _limited(rule.kept_keys(kept), rule)
    values = [pa.array([one and one.get(key) for one in kept], pa.string()) for key in keys]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=False)]
    arrays += [_instants(created), _instants(completed), _maps(values, keys, len(events))]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _instants(texts: Sequence[str]) -> pa.Array:
    instants = pa.array(texts, pa.string()).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    instants = pc.divide(instants, 1_000)
    if pc.any(_is_outside(instants)).as_py():
        raise pa.ArrowInvalid("an instant is out of range")
    return instants.cast(SCHEMA.field("created").type)


def _lines(body: bytes) -> bytes:
    """Return the elements of an array one after another, each starting on its own line."""
    if body[:1] == b"[" and body[-1:] == b"]" and b"}, {" not in body and not _has_breaks(body):
        # Three times as fast. Within a text or an element, the replacement produces invalid JSON.
        return body[1:-1].replace(b"},{", b"}\n{")
    return b"\n".join(_ELEMENTS.decode(body))


def _has_breaks(body: bytes) -> bool:
    """Return whether an element may span several lines."""
    return b"\n" in body or b"\r" in body


@functools.lru_cache(maxsize=16)
def _parsing(keys: tuple[str, ...], *, one_line_each: bool) -> pj.ParseOptions:
    types = {_SENT_AS[field.name]: field.type for field in SCHEMA}
    types |= dict.fromkeys(_INSTANTS, pa.int64())
    types["annotations"] = pa.struct(dict.fromkeys(keys, pa.string()))
    return pj.ParseOptions(
        explicit_schema=pa.schema(types),
        newlines_in_values=not one_line_each,
        unexpected_field_behavior="ignore",
    )


def _lists(lists: pa.ListArray) -> pa.ListArray:
    """Put empty lists in place of absent ones."""
    if not lists.null_count:
        return lists
    # Nothing stands behind an absent list, so its offsets are those of an empty one.
    return pa.ListArray.from_arrays(lists.offsets, lists.values, type=lists.type)


def _maps(columns: Sequence[pa.Array], keys: Sequence[str], rows: int) -> pa.MapArray:
    """Create annotations from one column per key: maps in the order of the keys, null rather than empty."""
    if not columns or not rows:
        return pa.nulls(rows, SCHEMA.field("annotations").type)
    width = len(columns)
    # Row by row, the position of each value in the concatenated columns.
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
    """Refuse values that no record may contain: the decoder of single records then reports the error."""
    faults = [
        pc.any(pc.equal(table["did"], "")),
        pc.any(pc.invert(pc.is_in(table["final_state"], pa.array(list(FinalState), pa.string())))),
        *(pc.any(_is_outside(table[name].cast(pa.int64()))) for name in _INSTANTS),
    ]
    required = (field.name for field in SCHEMA if not field.nullable)
    nulls = [table[name].null_count for name in required]
    steps = table["transforms"].combine_chunks().flatten().null_count
    if any(nulls) or steps or any(fault.as_py() for fault in faults):
        raise pa.ArrowInvalid("an element is not a record")


def _is_outside(instants: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.or_(pc.less(instants, FIRST_MS), pc.greater_equal(instants, AFTER_LAST_MS))
