"""Building spans: from the files of a root, which are read here, and from smaller spans.

Whoever writes below ``provenance/keys`` has the lock. A span of a day, a month or a year is made of smaller
ones once its time is past, unless these are few beside a large one: a late record of an old month shall not
rewrite the keys of the month.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.files import Files, publish

from .. import parquet
from ..differing import DIFFERING, LOCK
from ..directory import names
from ..names import HOUR_MS, KEYS, hour_of
from ..query import FAILED, connect_alone, escaped, execute
from .contents import CONTENTS, KINDS, Contents, DamagedError, Span, digits_of, read_contents
from .hashes import HASHES
from .spans import (
    KnownFile,
    check,
    footer_of,
    hour_of_file,
    known_files,
    numbers_of,
    read_files,
    stamp_of,
    write_rows,
)

if TYPE_CHECKING:
    import duckdb

    from ..ledger import Position
    from ..names import Hour

log = logging.getLogger("waybill.exporter")

DIGITS: Final = (10, 8, 6, 4)
"""How many digits name an hour, a day, a month and a year."""

_KINDS_BYTES_MAX: Final = 2**23
"""A file whose kinds take more is counted by reading it."""

_SPANS_MAX: Final = 32
_ROLLED_UP_KEYS_MAX: Final = 2**26

_TABLES: Final = """
    CREATE OR REPLACE TEMP TABLE keys (hash UBIGINT, file UINTEGER);
    CREATE OR REPLACE TEMP TABLE found (file UINTEGER, first_ms BIGINT, last_ms BIGINT, is_summed BOOLEAN);
    CREATE OR REPLACE TEMP TABLE sums (
        file UINTEGER, final_state VARCHAR, system_name VARCHAR, data_source VARCHAR, data_sink VARCHAR,
        records BIGINT, first_ms BIGINT, last_ms BIGINT
    )
"""
_KEYS: Final = f"""
    INSERT INTO keys FROM ({HASHES}) SELECT DISTINCT hash, $number + file_index
"""
# Kinds are told apart by hashes first: those whose names take much are never held as names.
_FOUND: Final = f"""
    INSERT INTO found
    FROM (
        FROM (
            FROM read_parquet($files, hive_partitioning = false)
            SELECT file_index, epoch_ms(completed) AS at_ms,
                hash(final_state, system_name, data_source, data_sink) AS kind,
                strlen(system_name) + strlen(data_source) + coalesce(strlen(data_sink), 0) AS size
        )
        SELECT file_index, kind, min(at_ms) AS first_ms, max(at_ms) AS last_ms, max(size) AS size
        GROUP BY ALL
    ) SELECT $number + file_index, min(first_ms), max(last_ms), sum(size) <= {_KINDS_BYTES_MAX}
    GROUP BY file_index
"""
_EMPTY: Final = "INSERT INTO found VALUES ($number, $start_ms, $start_ms, true)"
_SUMS: Final = """
    INSERT INTO sums FROM read_parquet($files, hive_partitioning = false)
    SELECT $numbers[file_index::BIGINT + 1], final_state, system_name, data_source, data_sink,
        count(*), min(epoch_ms(completed)), max(epoch_ms(completed))
    GROUP BY ALL
"""
_FILES: Final = """
    CREATE OR REPLACE TEMP TABLE files AS
    FROM (SELECT unnest($numbers)::UINTEGER AS number, unnest($paths) AS path, unnest($stamps) AS stamp)
    JOIN found ON number = file
    SELECT number, path, first_ms, last_ms, stamp, is_summed
"""
_OF_TABLES: Final = {
    "keys": "FROM keys SEMI JOIN files ON file = number ORDER BY hash, file",
    "files": "FROM files ORDER BY first_ms, path",
    "sums": "FROM sums SEMI JOIN files ON file = number AND is_summed ORDER BY file",
}
_STAYS: Final = "NOT IN (SELECT unnest($gone::UINTEGER[]))"
_OF_SPANS: Final = {
    kind: f"FROM read_parquet(${kind}, hive_partitioning = false) WHERE {number} {_STAYS} ORDER BY {order}"
    for kind, number, order in (
        ("keys", "file", "hash, file"),
        ("files", "number", "first_ms, path"),
        ("sums", "file", "file"),
    )
}


class ReadFile(NamedTuple):
    """A file to be read.

    Attributes:
        path: relative to the root.
        place: where it is.
        stamp: identifies this version of it.
        size_bytes: its size.
    """

    path: str
    place: Path
    stamp: str
    size_bytes: int


class Builder:
    """Builds the spans of a root, under the lock of its keys."""

    def __init__(self, root: Path, files: Files) -> None:
        self.root = root
        self._files = files

    def known(self) -> Contents | None:
        """The contents to go on with, if there are any that can be used."""
        try:
            return read_contents(self.root)
        except DamagedError as error:
            log.warning("%s", error)
            return None

    def empty(self, position: Position) -> Contents:
        """Contents without any span."""
        # A serial is never used again, so that no reader takes a new span for an old one.
        serials = [name.partition("-")[2].partition(".")[0] for name in names(self.root / KEYS)]
        return Contents(position, serial=max(map(int, filter(str.isdecimal, serials)), default=0) + 1)

    def lost(self, contents: Contents) -> tuple[Span, ...]:
        """The spans that lack a file: a reader has removed what was damaged."""
        there = set(names(self.root / KEYS))
        return tuple(
            span
            for span in contents.spans
            if not there.issuperset(span.path(self.root, kind).name for kind in KINDS)
        )

    def files_of(self, span: Span, hours: Sequence[Hour]) -> list[KnownFile]:
        """The files of a span that are not gone, of some hours."""
        if not any(map(span.has, hours)):
            return []
        table = read_files(self.root, span)
        starts = numbers_of(pa.int64(), "q", [hour.start_ms // HOUR_MS for hour in hours])
        table = table.filter(pc.is_in(pc.divide(table["first_ms"], HOUR_MS), value_set=starts))
        return [file for file in known_files(table) if file.number not in span.gone]

    def with_span(self, contents: Contents, read: Sequence[ReadFile]) -> tuple[Contents, list[ReadFile]]:
        """Read files of one month into a span; returns the new contents, and the files that cannot be read.

        A file that another stamp than it had is found for now is one of these.
        """
        if not read:
            return contents, []
        with connect_alone() as connection:
            execute(connection, _TABLES, {})
            rows = {one: count for one in read if (count := _count_rows(one)) is not None}
            numbered = dict(enumerate(rows, contents.number))
            _insert(connection, numbered)
            for number in (number for number, one in numbered.items() if not rows[one]):
                start_ms = hour_of_file(numbered[number].path).start_ms
                execute(connection, _EMPTY, {"number": number, "start_ms": start_ms})
            same = {number: one for number, one in numbered.items() if _has_stamp(one)}
            paths, stamps = [one.path for one in same.values()], [one.stamp for one in same.values()]
            execute(connection, _FILES, {"numbers": list(same), "paths": paths, "stamps": stamps})
            there = connection.execute("FROM files SELECT number").fetchall()
            good = [same[number] for (number,) in there]
            bad = [one for one in read if one not in good]
            if not good:
                return contents, bad
            name = _unit_of([digits_of(hour_of_file(one.path)) for one in good])
            contents = self._published_span(connection, contents, name, _OF_TABLES, {})
        return msgspec.structs.replace(contents, number=contents.number + len(numbered)), bad

    def published(self, contents: Contents, before: Contents | None) -> Contents:
        """Roll up spans, and replace the contents before."""
        contents = self._rolled_up(contents)
        if contents != before:
            publish(self._files, self.root / CONTENTS, msgspec.json.encode(contents))
        self._sweep(contents)
        return contents

    def _published_span(
        self,
        connection: duckdb.DuckDBPyConnection,
        contents: Contents,
        name: str,
        rows: Mapping[str, str],
        params: Mapping[str, Any],
    ) -> Contents:
        span = Span(name, contents.serial, 0, 0)
        counts = {
            kind: write_rows(connection, query, params, self._files, span.path(self.root, kind))
            for kind, query in rows.items()
        }
        self._files.fsync_folder(self.root / KEYS)
        footers = tuple(footer_of(span.path(self.root, kind)) for kind in KINDS)
        span = msgspec.structs.replace(span, files=counts["files"], keys=counts["keys"], footers=footers)
        return msgspec.structs.replace(contents, spans=(*contents.spans, span), serial=span.serial + 1)

    def _rolled_up(self, contents: Contents) -> Contents:
        """The contents after the roll-ups that are due."""
        for span in contents.spans:
            if 2 * span.live < span.files:
                contents = self._united(contents, span.name, [span])
        now = digits_of(hour_of(SYSTEM_CLOCK.now_ms()))
        for length in DIGITS:
            units: defaultdict[str, list[Span]] = defaultdict(list)
            for span in contents.spans:
                if len(span.name) >= length:
                    units[span.name[:length]].append(span)
            for unit, some in units.items():
                is_waiting = any(digits_of(hour).startswith(unit) for hour in contents.waiting)
                if not is_waiting and _is_due(some, is_past=unit < now[:length]):
                    contents = self._united(contents, unit, some)
        return contents

    def _united(self, contents: Contents, name: str, some: Sequence[Span]) -> Contents:
        """Make one span of some, without the files that are gone."""
        for span in some:
            for kind in KINDS:
                check(self.root, span, kind)
        contents = msgspec.structs.replace(
            contents, spans=tuple(span for span in contents.spans if span not in some)
        )
        if not any(span.live for span in some):
            return contents
        params: dict[str, Any] = {
            kind: escaped(span.path(self.root, kind) for span in some) for kind in KINDS
        }
        params["gone"] = [number for span in some for number in span.gone]
        with connect_alone() as connection:
            return self._published_span(connection, contents, name, _OF_SPANS, params)

    def _sweep(self, contents: Contents) -> None:
        """Remove what the contents do not name."""
        named = {span.path(self.root, kind).name for span in contents.spans for kind in KINDS}
        for name in names(self.root / KEYS):
            if name not in {*named, LOCK, CONTENTS.name, DIFFERING.name}:
                self._files.remove(self.root / KEYS / name)


def _count_rows(one: ReadFile) -> int | None:
    """How many rows a file has; None if it cannot be read."""
    try:
        rows: int = parquet.open_file(one.place).metadata.num_rows
    except parquet.DAMAGED:
        return None
    return rows


def _insert(connection: duckdb.DuckDBPyConnection, numbered: Mapping[int, ReadFile]) -> None:
    """Read the keys and sums of files, of all at once if that works; of those that cannot be read, none."""
    if numbered and not _is_inserted(connection, list(numbered.values()), min(numbered)):
        for number, one in numbered.items():
            _is_inserted(connection, [one], number)


def _is_inserted(connection: duckdb.DuckDBPyConnection, read: Sequence[ReadFile], number: int) -> bool:
    params = {"files": escaped(one.place for one in read), "number": number}
    try:
        connection.begin()
        for statement in (_KEYS, _FOUND):
            execute(connection, statement, params)
        summed = f"FROM found SELECT file WHERE is_summed AND file >= {number}"
        numbers = [file for (file,) in connection.execute(summed).fetchall()]
        if numbers:
            files = escaped(read[file - number].place for file in numbers)
            execute(connection, _SUMS, {"files": files, "numbers": numbers})
        connection.commit()
    except FAILED:
        connection.rollback()
        return False
    return True


def _has_stamp(one: ReadFile) -> bool:
    try:
        return stamp_of(one.place.stat()) == one.stamp
    except FileNotFoundError:
        return False


def _is_due(some: Sequence[Span], *, is_past: bool) -> bool:
    """Whether the spans of a unit become one."""
    keys = [span.keys for span in some]
    is_worth_it = is_past and 8 * (sum(keys) - max(keys)) >= max(keys)
    return len(some) > 1 and sum(keys) <= _ROLLED_UP_KEYS_MAX and (is_worth_it or len(some) > _SPANS_MAX)


def _unit_of(hours: Collection[str]) -> str:
    """The hour, day, month or year that some hours, as digits, have in common."""
    first, last = min(hours), max(hours)
    common = (first[:length] for length in DIGITS if first[:length] == last[:length])
    return next(common)  # one span is at most of a year
