"""Reading the layout while it is written: each record is seen once at any moment.

A compaction publishes an hour's compacted files first and removes its raw files after. So the folders are
listed raw first and compacted after, and the compacted files are opened before any raw file is read: what
was in a raw file is in one or the other. Rows of a raw file that the opened compacted file of their
system covers are left out. A raw file that vanishes before it is read has gone into a compacted file that
may be newer than the list, so the hour is listed again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.covers import Covers
from waybill.exporter.layout import Hour, RawName, safe_name
from waybill.exporter.listing import compacted_hours, compacted_in, raw_files, raw_hours
from waybill.exporter.merge import merge
from waybill.exporter.query import Query
from waybill.exporter.raw import by_hour
from waybill.facets.arrow import SCHEMA, from_table

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from waybill.facets import ProvenanceRecord

log = logging.getLogger("waybill.exporter")


def find(
    root: Path, query: Query | None = None, *, unfiled: pa.Table | None = None
) -> list[ProvenanceRecord]:
    """The records of a root that answer a query, newest first; see `scan`."""
    query = query or Query()
    found: list[ProvenanceRecord] = []
    for table in scan(root, query, unfiled=unfiled):
        found += from_table(table if query.limit is None else table.slice(0, query.limit - len(found)))
        if query.limit is not None and len(found) >= query.limit:
            break
    return found


def scan(root: Path, query: Query | None = None, *, unfiled: pa.Table | None = None) -> Iterator[pa.Table]:
    """The records that answer a query: for each hour a table of `waybill.facets.arrow.SCHEMA`, newest first.

    `Query.limit` is for the caller to keep. A file that cannot be read is logged as a warning.

    Args:
        root: the layout's root.
        query: what is asked.
        unfiled: records that may not be in files yet, as `waybill.exporter.unfiled` has read them for it.
    """
    query = query or Query()
    waiting = {} if unfiled is None else {hour: parquet.code(part) for hour, part in by_hour(unfiled)}
    # Raw before compacted: an hour that is compacted between the two lists is in the second.
    hours = raw_hours(root)
    hours |= compacted_hours(root, query.system_name) | waiting.keys()
    for hour in sorted(filter(query.touches, hours), reverse=True):
        table = _read_hour(root, hour, query, waiting.get(hour))
        if table.num_rows:
            yield parquet.sort(table, "completed", "did", order="descending").cast(SCHEMA)


def scan_hours(*roots: Path) -> Iterator[tuple[pa.Table, ...]]:
    """For each hour that one of the roots has, oldest first, the records of each root in any order."""
    hours = {hour for root in roots for hour in (*raw_hours(root), *compacted_hours(root))}
    for hour in sorted(hours):
        yield tuple(_read_hour(root, hour, Query()).cast(SCHEMA) for root in roots)


class _VanishedError(Exception):
    """A raw file went while it was looked for."""


class _Compacted(NamedTuple):
    """An open compacted file and what it covers."""

    file: ds.ParquetFileFragment
    covers: Covers


def _read_hour(root: Path, hour: Hour, query: Query, unfiled: pa.Table | None = None) -> pa.Table:
    waiting = [] if unfiled is None else [unfiled]
    while True:
        raws = raw_files(root, hour)
        compacted = _open_compacted(root, hour, query)
        try:
            read = [_read_raw(raw, path, compacted, query) for raw, path in raws.items()]
        except _VanishedError:
            continue
        fresh = parquet.join([*read, *waiting])
        files = [one for several in compacted.values() for one in several]
        if not fresh.num_rows and len(files) == len(compacted):
            wanted = query.by_key() & query.by_rest()
            return parquet.join([_select(one, wanted) for one in files])
        # Repeats are merged before what a merge can change is asked for.
        known = [_select(one, query.by_key()) for one in files]
        return merge(parquet.join([*known, fresh])).filter(query.by_rest())


def _open_compacted(root: Path, hour: Hour, query: Query) -> dict[str, list[_Compacted]]:
    found = defaultdict(list)
    for name, path in compacted_in(root, hour, query.system_name):
        try:
            file = parquet.open_fragment(path)
            found[name].append(_Compacted(file, Covers.read(file.metadata.metadata)))
        except FileNotFoundError:
            continue
        except parquet.DAMAGED as error:
            _warn(path, error)
    return found


def _read_raw(raw: RawName, path: Path, compacted: Mapping[str, list[_Compacted]], query: Query) -> pa.Table:
    try:
        table = parquet.open_fragment(path).to_table(filter=query.by_key(), use_threads=False)
    except FileNotFoundError:
        raise _VanishedError from None
    except parquet.DAMAGED as error:
        _warn(path, error)
        return parquet.CODED_SCHEMA.empty_table()
    covered = [
        system
        for system in pc.unique(table["system_name"].cast(pa.string())).to_pylist()
        if any(one.covers.has(raw) for one in compacted.get(safe_name(system), ()))
    ]
    if covered:
        table = table.filter(~pc.field("system_name").cast(pa.string()).isin(covered))
    return table


def _select(one: _Compacted, wanted: pc.Expression) -> pa.Table:
    try:
        # Counting reads only the columns asked for; most files hold nothing that is.
        if one.file.count_rows(filter=wanted, use_threads=False):
            return one.file.to_table(filter=wanted, use_threads=False)
    except parquet.DAMAGED as error:
        _warn(Path(one.file.path), error)
    return parquet.CODED_SCHEMA.empty_table()


def _warn(path: Path, error: Exception) -> None:
    log.warning("%s", parquet.unreadable(path, error))
