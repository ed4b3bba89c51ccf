"""Reading the layout while it is written: each record is returned once at any moment.

A compaction publishes an hour's compacted files first, and removes its raw files then. So raw files are
listed before compacted ones, and compacted files are opened before any raw file is read: each row is in one
or the other. Rows of a raw file that the opened compacted file of their system covers are left out. The rows
of a raw file that vanishes before it is opened may be in a compacted file that is newer than the one listed,
so the hour is listed again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.compaction import by_hour
from waybill.exporter.directory import compacted_hours, compacted_in, raw_files, raw_hours
from waybill.exporter.names import Hour, RawName, safe_name
from waybill.exporter.parquet import (
    WINDOW_ROWS,
    Covers,
    Selectable,
    TimeWindow,
    cut,
    merge_table,
    open_selectable,
    select,
)
from waybill.exporter.query.query import Query
from waybill.facets.arrow import SCHEMA, from_table

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

log = logging.getLogger("waybill.exporter")


def find(
    root: Path,
    query: Query | None = None,
    *,
    unfiled: pa.Table | None = None,
    window_rows: int = WINDOW_ROWS,
) -> list[ProvenanceRecord]:
    """The records of a root that answer a query, newest first; see `scan`."""
    query = query or Query()
    found: list[ProvenanceRecord] = []
    for table in scan(root, query, unfiled=unfiled, window_rows=window_rows):
        found += from_table(table if query.limit is None else table.slice(0, query.limit - len(found)))
        if query.limit is not None and len(found) >= query.limit:
            break
    return found


def scan(
    root: Path,
    query: Query | None = None,
    *,
    unfiled: pa.Table | None = None,
    window_rows: int = WINDOW_ROWS,
) -> Iterator[pa.Table]:
    """The records that answer a query: tables of `waybill.facets.arrow.SCHEMA`, newest first.

    One table is an hour, or a part of it that fits into memory. The caller has to apply `Query.limit`. A file
    that cannot be read is logged as a warning.

    `unfiled` are records that may not be in files yet, as `read_backlog` returns them for the query. A table
    is made of at most about `window_rows` rows.
    """
    query = query or Query()
    waiting = {} if unfiled is None else {hour: parquet.code(part) for hour, part in by_hour(unfiled)}
    # Raw hours are listed first: an hour that is compacted between the two lists is in the second.
    hours = raw_hours(root)
    hours |= compacted_hours(root, query.system_name) | waiting.keys()
    for hour in sorted(filter(query.touches, hours), reverse=True):
        opened = _open_hour(root, hour, query)
        # The records of one file are few, so they need no windows.
        windows = [query] if query.did is not None else _windows(query, [opened], window_rows)
        for window in reversed(windows):
            table = _read(opened, window, waiting.get(hour))
            if table.num_rows:
                yield parquet.sort(table, "completed", "did", order="descending").cast(SCHEMA)


def scan_hours(*roots: Path) -> Iterator[tuple[pa.Table, ...]]:
    """The records of several roots side by side, in any order.

    Each tuple is an hour that one of the roots has, or a part of it that fits into memory, oldest first.
    """
    hours = {hour for root in roots for hour in (*raw_hours(root), *compacted_hours(root))}
    for hour in sorted(hours):
        opened = [_open_hour(root, hour, Query()) for root in roots]
        for window in _windows(Query(), opened, WINDOW_ROWS):
            yield tuple(_read(one, window).cast(SCHEMA) for one in opened)


class _Opened(NamedTuple):
    """An open file, and what it covers if it is a compacted or late one."""

    path: Path
    file: Selectable
    covers: Covers = Covers()


class _OpenHour(NamedTuple):
    """An hour's open files, which stay readable when they are removed or replaced."""

    raws: Mapping[RawName, _Opened]
    compacted: Mapping[str, Sequence[_Opened]]

    def files(self) -> list[Selectable]:
        compacted = (one.file for several in self.compacted.values() for one in several)
        return [*(one.file for one in self.raws.values()), *compacted]


def _open_hour(root: Path, hour: Hour, query: Query) -> _OpenHour:
    while True:
        raws = raw_files(root, hour)
        compacted = _open_compacted(root, hour, query)
        try:
            opened = {raw: file for raw, path in raws.items() if (file := _open_raw(path)) is not None}
        except FileNotFoundError:
            continue  # A raw file vanished between its listing and its opening.
        return _OpenHour(opened, compacted)


def _open_raw(path: Path) -> _Opened | None:
    try:
        return _Opened(path, open_selectable(path))
    except FileNotFoundError:
        raise
    except parquet.DAMAGED as error:
        _warn(path, error)
        return None


def _windows(query: Query, opened: Sequence[_OpenHour], window_rows: int) -> list[Query]:
    """The query cut by `completed`, oldest first."""
    spans = (span for one in opened for file in one.files() for span in parquet.spans(file.metadata))
    windows = [
        TimeWindow(
            since_ms if query.since_ms is None else max(since_ms, query.since_ms),
            until_ms if query.until_ms is None else min(until_ms, query.until_ms),
        )
        for since_ms, until_ms in cut(spans, window_rows)
    ]
    return [
        msgspec.structs.replace(query, since_ms=window.since_ms, until_ms=window.until_ms)
        for window in windows
        if window.since_ms < window.until_ms
    ]


def _read(opened: _OpenHour, query: Query, unfiled: pa.Table | None = None) -> pa.Table:
    by_key, texts = query.by_key(), query.texts_of_key()
    waiting = [] if unfiled is None else [unfiled.filter(by_key)]
    read = [_read_raw(raw, one, opened.compacted, by_key, texts) for raw, one in opened.raws.items()]
    fresh = parquet.join([*(table for table in read if table.num_rows), *waiting])
    files = [one for several in opened.compacted.values() for one in several]
    if not fresh.num_rows and len(files) == len(opened.compacted):
        wanted = by_key & query.by_rest()
        return parquet.join([_select(one, wanted, query.texts()) for one in files])
    # Repeats are merged before the conditions on what a merge can change apply.
    known = [_select(one, by_key, texts) for one in files]
    return merge_table(parquet.join([*known, fresh])).filter(query.by_rest())


def _open_compacted(root: Path, hour: Hour, query: Query) -> dict[str, list[_Opened]]:
    found = defaultdict(list)
    for name, path in compacted_in(root, hour, query.system_name):
        try:
            file = open_selectable(path)
            found[name].append(_Opened(path, file, Covers.read(file.metadata.metadata)))
        except FileNotFoundError:
            continue
        except parquet.DAMAGED as error:
            _warn(path, error)
    return found


def _read_raw(
    raw: RawName,
    one: _Opened,
    compacted: Mapping[str, Sequence[_Opened]],
    wanted: pc.Expression,
    texts: Mapping[str, str],
) -> pa.Table:
    table = _select(one, wanted, texts)
    if not table.num_rows:
        return table
    covered = [
        system
        for system in pc.unique(table["system_name"].cast(pa.string())).to_pylist()
        if any(known.covers.has(raw) for known in compacted.get(safe_name(system), ()))
    ]
    if covered:
        table = table.filter(~pc.field("system_name").cast(pa.string()).isin(covered))
    return table


def _select(one: _Opened, wanted: pc.Expression, texts: Mapping[str, str]) -> pa.Table:
    try:
        return select(one.file, wanted, texts)
    except parquet.DAMAGED as error:
        _warn(one.path, error)
    return parquet.CODED_SCHEMA.empty_table()


def _warn(path: Path, error: Exception) -> None:
    log.warning("%s", parquet.unreadable(path, error))
