"""Making the keys of a root, and keeping them up with the root's ledger.

A step follows the ledger, reads the files of some hours, and publishes one span with the new contents; small
spans are rolled up. So a step ends soon, and a crash loses one step at most:

1. The files of the span are published under a serial that no contents name.
2. The contents are replaced.
3. Files that the new contents do not name are removed.

A span of a day, a month or a year is made of smaller ones once its time is past, unless these are few beside
a large one: a late record of an old month shall not rewrite the keys of the month.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.files import Files, publish
from waybill.transport.locks import locked

from .. import parquet
from ..differing import DIFFERING, LOCK, list_differing
from ..directory import compacted_files, compacted_folders, names
from ..ledger import compare_hours, follow_ledger, noted_hours
from ..names import HOUR_MS, KEYS, Hour, hour_of, relative
from ..query import FAILED, connect_alone, escaped, execute
from .changed import list_changed, note_compared
from .contents import CONTENTS, KINDS, Contents, DamagedError, Span, digits_of, read_contents
from .hashes import HASHES
from .opened import OpenKeys
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

log = logging.getLogger("waybill.exporter")

STEP_FILES: Final = 500
"""A step reads so many files at most, or those of one hour."""

STEP_BYTES: Final = 2**26


_DIGITS: Final = (10, 8, 6, 4)
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


def keep_step(
    root: Path, *, files: Files | None = None, step_files: int = STEP_FILES, again: bool = False
) -> Contents | None:
    """Do one step to make the keys of a root, or to bring them up to date.

    With `again`, files that could not be read are tried again, and the folders are compared with the files
    that the keys know: somebody may have put a file there, or deleted one.

    Returns:
        The new contents, which are up to date once no hour waits; None if the root has no ledger.

    Raises:
        OSError: the root cannot be read or written.
    """
    if follow_ledger(root, None) is None:
        return None
    files = files or Files()
    files.make_folder(root / KEYS)
    with locked(root / KEYS / LOCK):
        while True:
            try:
                return _Step(root, files, step_files).run(again=again)
            except DamagedError as error:
                log.warning("%s", error)
                files.remove(error.path)  # The next try finds that it is gone, and reads its hours again.


class _Step:
    """One step."""

    def __init__(self, root: Path, files: Files, step_files: int) -> None:
        self._root = root
        self._files = files
        self._step_files = step_files

    def run(self, *, again: bool) -> Contents | None:
        """Follow the ledger, read files, roll up spans, and replace the contents."""
        before = self._known()
        contents = before
        if before is None or follow_ledger(self._root, before.position) is None:
            contents = self._begun()
        if contents is None:
            return None
        contents = self._without_lost(contents)
        if again:
            noted = (one.hour for one in list_differing(self._root))
            changed = list_changed(OpenKeys(self._root, contents))
            note_compared(self._root)
            contents = _waiting_for(contents, {*contents.whole, *noted, *changed})
        followed = follow_ledger(self._root, contents.position)
        if followed is None:  # the root was replaced in this very moment
            return contents
        contents = _waiting_for(contents, followed.hours)
        contents = msgspec.structs.replace(contents, position=followed.position)
        if contents.waiting:
            read = self._read(contents)
            compare_hours(
                self._root, self._files, {*contents.waiting}.difference(read.waiting), contents.position
            )
            contents = read
        return self._published(contents, before)

    def _known(self) -> Contents | None:
        """The contents to go on with, if there are any that can be used."""
        try:
            return read_contents(self._root)
        except DamagedError as error:
            log.warning("%s", error)
            return None

    def _begun(self) -> Contents | None:
        """Contents that know no file yet."""
        begins = follow_ledger(self._root, None)
        if begins is None:
            return None
        # A serial is never used again, so that no reader takes a new span for an old one.
        serials = [name.partition("-")[2].partition(".")[0] for name in names(self._root / KEYS)]
        serial = max(map(int, filter(str.isdecimal, serials)), default=0) + 1
        return _waiting_for(Contents(begins.position, serial=serial), {*self._all_hours(), *begins.hours})

    def _all_hours(self) -> set[Hour]:
        """The hours that have compacted or late files, or had some the last time that they changed."""
        return {*compacted_folders(self._root), *noted_hours(self._root)}

    def _without_lost(self, contents: Contents) -> Contents:
        """The contents without the spans that lack a file: a reader has removed what was damaged."""
        there = set(names(self._root / KEYS))
        lost = [
            span
            for span in contents.spans
            if not there.issuperset(span.path(self._root, kind).name for kind in KINDS)
        ]
        hours = [hour for hour in self._all_hours() if any(span.has(hour) for span in lost)]
        spans = tuple(span for span in contents.spans if span not in lost)
        return _waiting_for(msgspec.structs.replace(contents, spans=spans), hours)

    def _read(self, contents: Contents) -> Contents:
        """Read the files of waiting hours, the newest first, until there are enough for a step."""
        there = self._next_files(contents)
        known = {span: self._files_of(span, list(there)) for span in contents.spans}
        versions = {(file.path, file.stamp) for hour in there.values() for file in hour}
        stale = {
            span: [file.number for file in files if (file.path, file.stamp) not in versions]
            for span, files in known.items()
        }
        spans = [msgspec.structs.replace(span, gone=(*span.gone, *stale[span])) for span in contents.spans]
        contents = msgspec.structs.replace(contents, spans=tuple(spans))
        same = {(file.path, file.stamp) for files in known.values() for file in files}
        read = [file for hour in there.values() for file in hour if (file.path, file.stamp) not in same]
        contents, bad = self._with_span(contents, read)
        # Questions read the bad ones themselves, and say what is wrong with them.
        whole = {
            hour
            for hour, files in there.items()
            if not set(bad).isdisjoint(files) or len({_system(one) for one in files}) < len(files)
        }
        return msgspec.structs.replace(
            contents,
            waiting=contents.waiting[len(there) :],
            whole=tuple(sorted(whole.union({*contents.whole} - there.keys()))),
        )

    def _next_files(self, contents: Contents) -> dict[Hour, list[ReadFile]]:
        """The files of the first waiting hours, of one month, as many as are enough for a step."""
        first = contents.waiting[0].day[:6]
        hours = list(takewhile(lambda hour: hour.day.startswith(first), contents.waiting))
        there = compacted_files(self._root, hours)
        found: dict[Hour, list[ReadFile]] = {}
        count = size_bytes = 0
        for hour in hours:
            if count >= self._step_files or size_bytes >= STEP_BYTES:
                break
            found[hour] = [one for path in there[hour] if (one := self._file_at(path)) is not None]
            count += len(found[hour])
            size_bytes += sum(one.size_bytes for one in found[hour])
        return found

    def _file_at(self, path: Path) -> ReadFile | None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        return ReadFile(relative(self._root, path), path, stamp_of(status), status.st_size)

    def _files_of(self, span: Span, hours: Sequence[Hour]) -> list[KnownFile]:
        """The files of a span that are not gone, of some hours."""
        if not any(map(span.has, hours)):
            return []
        table = read_files(self._root, span)
        starts = numbers_of(pa.int64(), "q", [hour.start_ms // HOUR_MS for hour in hours])
        table = table.filter(pc.is_in(pc.divide(table["first_ms"], HOUR_MS), value_set=starts))
        return [file for file in known_files(table) if file.number not in span.gone]

    def _with_span(self, contents: Contents, read: Sequence[ReadFile]) -> tuple[Contents, list[ReadFile]]:
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

    def _published(self, contents: Contents, before: Contents | None) -> Contents:
        """Roll up spans, and replace the contents before."""
        contents = self._rolled_up(contents)
        if contents != before:
            publish(self._files, self._root / CONTENTS, msgspec.json.encode(contents))
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
            kind: write_rows(connection, query, params, self._files, span.path(self._root, kind))
            for kind, query in rows.items()
        }
        self._files.fsync_folder(self._root / KEYS)
        footers = tuple(footer_of(span.path(self._root, kind)) for kind in KINDS)
        span = msgspec.structs.replace(span, files=counts["files"], keys=counts["keys"], footers=footers)
        return msgspec.structs.replace(contents, spans=(*contents.spans, span), serial=span.serial + 1)

    def _rolled_up(self, contents: Contents) -> Contents:
        """The contents after the roll-ups that are due."""
        for span in contents.spans:
            if 2 * span.live < span.files:
                contents = self._united(contents, span.name, [span])
        now = digits_of(hour_of(SYSTEM_CLOCK.now_ms()))
        for length in _DIGITS:
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
                check(self._root, span, kind)
        contents = msgspec.structs.replace(
            contents, spans=tuple(span for span in contents.spans if span not in some)
        )
        if not any(span.live for span in some):
            return contents
        params: dict[str, Any] = {
            kind: escaped(span.path(self._root, kind) for span in some) for kind in KINDS
        }
        params["gone"] = [number for span in some for number in span.gone]
        with connect_alone() as connection:
            return self._published_span(connection, contents, name, _OF_SPANS, params)

    def _sweep(self, contents: Contents) -> None:
        """Remove what the contents do not name."""
        named = {span.path(self._root, kind).name for span in contents.spans for kind in KINDS}
        for name in names(self._root / KEYS):
            if name not in {*named, LOCK, CONTENTS.name, DIFFERING.name}:
                self._files.remove(self._root / KEYS / name)


def _system(one: ReadFile) -> str:
    return one.path.split("/")[2]


def _waiting_for(contents: Contents, hours: Iterable[Hour]) -> Contents:
    waiting = tuple(sorted({*contents.waiting, *hours}, reverse=True))
    return msgspec.structs.replace(contents, waiting=waiting)


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
    common = (first[:length] for length in _DIGITS if first[:length] == last[:length])
    return next(common)  # one span is at most of a year
