"""The merge of records over whole tables.

Almost every record comes once, so all rows are sorted and compared with their neighbours as columns, and only
rows that share a key and yet differ become records one by one, for `waybill.facets.merge_all` to decide.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets import merge_all, record_key
from waybill.facets.arrow import from_table, to_tables

from .decoded import same_as_before
from .encoding import code, join, sort

if TYPE_CHECKING:
    from waybill.facets.merge_rule import RecordKey

_PLACE: Final = ("completed", "did")
_KEY: Final = (*_PLACE, "system_name", "data_sink", "path", "steps", "final_state")
"""A row's natural key as columns that can be compared and sorted, in the order of `merge_all`."""
_SEPARATOR: Final = "\0"


def merge_table(table: pa.Table) -> pa.Table:
    """Merge rows of `CODED_SCHEMA` that share a natural key, and sort them.

    The result is that of `merge_all`, except that systems may be in any order within one (completed, did).
    """
    table = sort(table, *_PLACE)
    tied = same_as_before(table, _PLACE)
    if not pc.any(tied).as_py():
        return table
    tied = whole_groups(tied)
    merged = _merge_tied(table.filter(tied))
    return sort(join([table.filter(pc.invert(tied)), merged]), *_PLACE)


def without(table: pa.Table, keys: Collection[RecordKey]) -> pa.Table:
    """The rows whose natural key is none of these."""
    candidates = pc.is_in(table["did"], pa.array(sorted({key[1] for key in keys}), pa.string()))
    if not pc.any(candidates).as_py():
        return table
    named = (record_key(record) in keys for record in from_table(table.filter(candidates)))
    stays = [not (one and next(named)) for one in candidates.to_pylist()]  # one for each candidate
    return table.filter(pa.array(stays, pa.bool_()))


def _merge_tied(table: pa.Table) -> pa.Table:
    """Merge rows of which each shares its place with another."""
    table, keys = _by_key(table)
    same_key = same_as_before(keys, _KEY)
    if not pc.any(same_key).as_py():
        return table
    repeated = pc.and_(
        same_key,
        same_as_before(
            _comparable(table), ("parent_did", "data_source", "filename", "created", "keys", "values")
        ),
    )
    table, keys = table.filter(pc.invert(repeated)), keys.filter(pc.invert(repeated))
    differing = whole_groups(same_as_before(keys, _KEY))
    if not pc.any(differing).as_py():
        return table
    merged = map(code, to_tables(merge_all(from_table(table.filter(differing)))))
    return _by_key(join([table.filter(pc.invert(differing)), *merged]))[0]


def _by_key(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows in order of their natural keys, and those keys as columns that can be compared."""
    keys = pa.table(
        {
            "completed": table["completed"],
            "did": table["did"],
            "system_name": _ranks(table["system_name"]),
            "data_sink": _ranks(table["data_sink"]),
            "path": pc.binary_join(table["transforms"], _SEPARATOR),
            "steps": pc.list_value_length(table["transforms"]),
            "final_state": _ranks(table["final_state"]),
        }
    )
    order = pc.sort_indices(keys, [(name, "ascending") for name in _KEY])
    return table.take(order), keys.take(order)


def _ranks(column: pa.ChunkedArray) -> pa.Array:
    """The places of texts in their order, to be compared in their stead; -1 for none, which comes first."""
    codes = column.combine_chunks()
    ranks = pc.rank(codes.dictionary, tiebreaker="min").cast(pa.int64())
    return ranks.take(codes.indices).fill_null(-1)


def _comparable(table: pa.Table) -> pa.Table:
    """The columns outside the key, annotations as texts, since maps cannot be compared."""
    annotations = table["annotations"].combine_chunks()
    offsets = annotations.offsets
    texts = {}
    for name, items in (("keys", annotations.keys), ("values", annotations.items)):
        lists = pa.ListArray.from_arrays(offsets, items)
        texts[name] = pc.if_else(annotations.is_valid(), pc.binary_join(lists, _SEPARATOR), None)
    columns = {name: table[name] for name in ("parent_did", "filename", "created")}
    return pa.table({**columns, "data_source": _ranks(table["data_source"]), **texts})


def whole_groups(same_as_before: pa.BooleanArray) -> pa.BooleanArray:
    """The rows that equal the one before or the one after."""
    after = pa.concat_arrays(
        [same_as_before.slice(1), pa.array([False] if len(same_as_before) else [], pa.bool_())]
    )
    return pc.or_(same_as_before, after)
