"""The keys as some contents have them, to be asked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets.record import AFTER_LAST_MS, FIRST_MS

from ..names import HOUR_MS, KEYS, Hour, hour_of, safe_name
from ..query import FAILED, KIND_COLUMNS, Conditions, Dimension, connect, escaped, run
from .contents import DamagedError, digits_of, read_contents
from .spans import KnownFile, OpenSpan, known_files, numbers_of, set_aside, version_of

if TYPE_CHECKING:
    import duckdb

    from ..query import Query
    from .contents import Contents

_Answer = TypeVar("_Answer")

_HOURS_KEPT: Final = 2**16
_KEPT_MAX: Final = 128
_KEPT_BYTES_MAX: Final = 2**18
"""So many sums of spans stay in memory for further questions, if each takes no more than so many bytes."""

_NO_FILES: Final = pa.schema(
    [
        ("number", pa.uint32()),
        ("path", pa.string()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
        ("stamp", pa.string()),
        ("is_summed", pa.bool_()),
    ]
).empty_table()
_SUMS: Final = "FROM read_parquet($sums, hive_partitioning = false)"
_COUNTS: Final = "sum(records)::BIGINT AS records, min(first_ms) AS first, max(last_ms) AS last"
_HOURS: Final = f"first_ms - first_ms % {HOUR_MS} AS hour"
_WHOLE: Final = "is_summed AND first_ms >= $since AND last_ms < $until"
_TOUCHED: Final = f"""
    first_ms < $until AND last_ms >= $since AND ($system IS NULL OR split_part(path, '/', 3) = $system)
    AND number NOT IN (SELECT unnest($gone::UINTEGER[]))
    AND first_ms // {HOUR_MS} NOT IN (SELECT unnest($unknown::BIGINT[]))
"""


class FilesByHour:
    """Known files, to be had by their hours.

    Args:
        files: rows of spans' files, in order of their hours.

    Attributes:
        hours: all their hours, in order.
    """

    def __init__(self, files: pa.Table) -> None:
        runs = pc.run_end_encode(pc.divide(files["first_ms"], HOUR_MS).combine_chunks())
        places = pairwise([0, *runs.run_ends.to_pylist()])
        self._files = files
        self._places = dict(zip(map(_hour_at, runs.values.to_pylist()), places, strict=True))
        self.hours: Sequence[Hour] = list(self._places)

    def of(self, hour: Hour) -> Iterator[KnownFile]:
        """The files of an hour."""
        begin, end = self._places.get(hour, (0, 0))
        return known_files(self._files.slice(begin, end - begin))


@functools.lru_cache(_HOURS_KEPT)
def _hour_at(number: int) -> Hour:
    """An hour by its number since the epoch."""
    return hour_of(number * HOUR_MS)


class OpenKeys:
    """The keys as some contents have them; spans that they share with those before stay open.

    Attributes:
        gone: the numbers of files that have been removed or replaced.
        problem: why answers take longer, in a sentence; None if they do not.
    """

    def __init__(self, root: Path, contents: Contents, before: OpenKeys | None = None) -> None:
        spans = () if before is None else before.spans
        known = {(one.span.name, one.span.serial): one for one in spans}
        self.root = root
        self.contents = contents
        self.gone = frozenset(number for span in contents.spans for number in span.gone)
        self.spans: Sequence[OpenSpan] = [
            known.get((one.name, one.serial)) or OpenSpan(root, one) for one in contents.spans
        ]
        self.problem: str | None = None

    @functools.cached_property
    def files(self) -> pa.Table:
        """All files, in order of their hours."""
        table = pa.concat_tables([one.files for one in self.spans] or [_NO_FILES])
        return table.take(pc.sort_indices(table, [("first_ms", "ascending")]))

    @functools.cached_property
    def by_hour(self) -> FilesByHour:
        """All files by their hours."""
        return FilesByHour(self.files)

    def versions(self) -> dict[str, str]:
        """By path, the versions of all files that are there."""
        columns = (self.files[name].to_pylist() for name in ("number", "path", "stamp"))
        there = zip(*columns, strict=True)
        return {path: version_of(stamp) for number, path, stamp in there if number not in self.gone}

    def is_asked_for(self, file: KnownFile, query: Query) -> bool:
        """Whether a file is there and has records of the query's system and window."""
        window, system = query.window, query.system_name
        return (
            file.first_ms < window.until_ms
            and file.last_ms >= window.since_ms
            and file.number not in self.gone
            and (system is None or file.system == safe_name(system))
        )

    def look_up(self, query: Query, hashes: list[list[int]]) -> tuple[FilesByHour, set[Hour]]:
        """The files that have one hash of each list, and the hours that turn out to be unknown.

        Raises:
            FileNotFoundError: the spans have been replaced in this moment.
        """
        numbers: set[int] = set()
        unknown: set[Hour] = set()
        for one in self._spans_of(query):
            try:
                numbers |= _numbers(one, hashes)
            except (DamagedError, FileNotFoundError) as error:
                if isinstance(error, FileNotFoundError) and read_contents(self.root) != self.contents:
                    raise
                self.problem = set_aside(one.span.path(self.root, "keys"), error)
                unknown.update(file.hour for file in known_files(one.files))
        wanted = pc.is_in(self.files["number"], value_set=numbers_of(pa.uint32(), "I", numbers))
        return FilesByHour(self.files.filter(wanted)), unknown

    def _spans_of(self, query: Query) -> list[OpenSpan]:
        """The spans that have a part of the query's window."""
        window = query.window
        since_ms, until_ms = max(window.since_ms, FIRST_MS), min(window.until_ms, AFTER_LAST_MS)
        if since_ms >= until_ms:
            return []
        first, last = digits_of(hour_of(since_ms)), digits_of(hour_of(until_ms - 1))
        names = ((one, one.span.name) for one in self.spans)
        return [one for one, name in names if first[: len(name)] <= name <= last[: len(name)]]

    def of_kind(self, query: Query) -> FilesByHour | None:
        """The files that may have records of a kind that is asked for; None: all may."""
        kinds = Conditions(query.of_kind())
        if kinds.is_any:
            return None
        wanted = f"{_SUMS} SELECT DISTINCT file WHERE {kinds.all}"

        def ask(connection: duckdb.DuckDBPyConnection, spans: list[OpenSpan]) -> FilesByHour:
            params = {**kinds.params, "sums": escaped(one.sums for one in spans)}
            numbers = run(connection, wanted, params).to_arrow_table()["file"]
            has_it = pc.is_in(self.files["number"], value_set=numbers)
            return FilesByHour(self.files.filter(pc.or_(has_it, pc.invert(self.files["is_summed"]))))

        return self._ask_sums(query, ask)

    def count(
        self, query: Query, by: Collection[Dimension], unknown: Iterable[Hour]
    ) -> tuple[pa.Table, FilesByHour] | None:
        """The sums of records that answer a query by kinds, and the files that are not in them.

        Files that are gone, and those of unknown hours, are in neither. None: the sums cannot be used.
        """
        kinds = Conditions(query.of_kind())
        dimensions = [one for one in Dimension if one in by]
        by_hour = [_HOURS] if Dimension.HOUR in dimensions else []
        columns = {*(one.column for one in dimensions), *(name for name in KIND_COLUMNS if name in kinds.all)}
        wanted = ", ".join([*(name for name in KIND_COLUMNS if name in columns), *by_hour, _COUNTS])

        def ask(connection: duckdb.DuckDBPyConnection, spans: list[OpenSpan]) -> tuple[pa.Table, FilesByHour]:
            whole = {one: _sums_of(one, wanted) for one in spans if self._is_whole(one, query, unknown)}
            tables = [table for table in whole.values() if table is not None]
            left = self.files.slice(0, 0)
            if rest := [one for one in spans if whole.get(one) is None]:
                params = {
                    "since": query.window.since_ms,
                    "until": query.window.until_ms,
                    "system": None if query.system_name is None else safe_name(query.system_name),
                    "gone": list(self.gone),
                    "unknown": [hour.start_ms // HOUR_MS for hour in unknown],
                }
                connection.register("files", pa.concat_tables([one.files for one in rest]))
                others = f"FROM files WHERE {_TOUCHED} AND NOT ({_WHOLE}) ORDER BY first_ms"
                left = run(connection, others, params).to_arrow_table()
                summed = f"WHERE file IN (FROM files SELECT number WHERE {_TOUCHED} AND {_WHOLE})"
                tables.append(_read_sums(connection, rest, wanted, summed, params))
            found = kinds.filter(pa.concat_tables(tables))
            found = found.select([*(one.field for one in dimensions), "records", "first", "last"])
            return found.rename_columns([*dimensions, "records", "first", "last"]), FilesByHour(left)

        return self._ask_sums(query, ask)

    def _is_whole(self, one: OpenSpan, query: Query, unknown: Iterable[Hour]) -> bool:
        """Whether a question is about all files of a span, and the sums have them all."""
        window = query.window
        return (
            one.is_summed
            and window.since_ms <= one.window.since_ms
            and one.window.until_ms <= window.until_ms
            and not any(map(one.span.has, unknown))
            and self.gone.isdisjoint(one.files["number"].to_pylist() if self.gone else ())
        )

    def _ask_sums(
        self, query: Query, ask: Callable[[duckdb.DuckDBPyConnection, list[OpenSpan]], _Answer]
    ) -> _Answer | None:
        """What a question of the sums gives; None if they cannot be used, or there are none."""
        spans = self._spans_of(query)
        if not spans:
            return None
        try:
            with connect() as connection:
                return ask(connection, spans)
        except DamagedError as error:
            self.problem = set_aside(error.path, error)
        except FAILED:
            self.problem = lacking(self.root)
        return None


def lacking(root: Path) -> str:
    """Why answers take longer where a file of the keys is missing, or was replaced in this moment."""
    return f"{root / KEYS} lacks a file; until it is made again, answers take longer"


@functools.lru_cache(_KEPT_MAX)
def _sums_of(span: OpenSpan, wanted: str) -> pa.Table | None:
    """The sums of all records of a span; None if they take too much memory to be kept."""
    with connect() as connection:
        table = _read_sums(connection, [span], wanted, "", {})
    return table if table.nbytes <= _KEPT_BYTES_MAX else None


def _read_sums(
    connection: duckdb.DuckDBPyConnection,
    spans: Sequence[OpenSpan],
    wanted: str,
    where: str,
    params: Mapping[str, Any],
) -> pa.Table:
    query = f"{_SUMS} SELECT {wanted} {where} GROUP BY ALL HAVING count(*) > 0"
    return run(connection, query, {**params, "sums": escaped(one.sums for one in spans)}).to_arrow_table()


def _numbers(one: OpenSpan, hashes: list[list[int]]) -> set[int]:
    """The numbers of a span's files that have one hash of each list."""
    return set.intersection(*(set().union(*map(one.numbers, some)) for some in hashes))
