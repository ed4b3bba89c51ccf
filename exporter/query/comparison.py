"""Comparing two roots, record by record.

The rows are compared as columns, a part of an hour at a time; only where parts differ do rows become records.
Annotations that the files of an hour have or lack only because different rules wrote them are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path

import msgspec

from waybill.facets import ProvenanceRecord, record_key
from waybill.facets.arrow import from_table

from .. import parquet
from .reader import scan_hours


class Difference(msgspec.Struct, frozen=True):
    """The two records of a natural key that two roots do not hold alike; None for a root that has none."""

    ours: ProvenanceRecord | None
    theirs: ProvenanceRecord | None


def compare(
    ours: Path | str, theirs: Path | str, *, left_out: set[str] | None = None
) -> Iterator[Difference]:
    """The differences between the records of two roots, by hour, whichever files they are in.

    Where the files of an hour were written by different rules of annotations, keys that only one of the rules
    keeps are not compared; records differed by them, and these keys are added to `left_out`.

    Raises:
        IncompleteError: a file of a root could not be read, or is in quarantine, so that its records count as
            missing; all that could be read came before.
        OSError: a folder could not be read.
    """
    ours = Path(ours)
    theirs = Path(theirs)
    left_out = set() if left_out is None else left_out
    for (rules, more), tables in scan_hours(ours, theirs):
        is_apart = partial(parquet.is_apart, rules, more)
        one, two = (parquet.sort(table, "completed", "did", "system_name") for table in tables)
        if not one.equals(two):
            yield from _by_key(from_table(one), from_table(two), is_apart, left_out)


def _by_key(
    ours: list[ProvenanceRecord],
    theirs: list[ProvenanceRecord],
    is_apart: Callable[[str], bool],
    left_out: set[str],
) -> Iterator[Difference]:
    mine = {record_key(record): record for record in ours}
    other = {record_key(record): record for record in theirs}
    for key in (*mine, *(key for key in other if key not in mine)):
        one, two = mine.get(key), other.get(key)
        if one == two:
            continue
        if one is None or two is None:
            yield Difference(one, two)
            continue
        said, more = one.annotations or {}, two.annotations or {}
        apart = set(filter(is_apart, {*said, *more}))
        if _without(one, apart) != _without(two, apart):
            yield Difference(one, two)
        else:
            left_out.update(key for key in apart if said.get(key) != more.get(key))


def _without(record: ProvenanceRecord, keys: Collection[str]) -> ProvenanceRecord:
    said = {key: value for key, value in (record.annotations or {}).items() if key not in keys}
    return msgspec.structs.replace(record, annotations=said or None)
