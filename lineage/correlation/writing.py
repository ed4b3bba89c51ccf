"""Adding to the correlation index what entries say.

Whatever is said of a file is merged as the record rule does it: the earliest beginning, the union of states
and sinks, of two texts the greater. So the tables follow from the set of entries alone: neither their order
nor repeats matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import apsw
import msgspec

from waybill.transport.permissions import file_mode

from . import sql
from .closure import Closure, Depths
from .forgetting import DAY_MS, Forgetting
from .index import place_in
from .sightings import Details

if TYPE_CHECKING:
    from .sightings import Content, Sighting

_BUSY_TIMEOUT_MS: Final = 30_000
_DETAILS_REMEMBERED: Final = 10_000
_SIGHTINGS_AT_ONCE: Final = 10_000
"""More of them do not fit into the processor's caches."""
_FILES_AT_ONCE: Final = 160
"""Put by one statement."""

_Row = tuple[str, int | None, int | None, int | None, str | None, int | None, str | None]
"""A row of the files."""


class _Rare(msgspec.Struct, array_like=True):
    """What is said of few files."""

    version: str | None = None
    fingerprint: str | None = None
    input_size: int | None = None
    forced: int | None = None
    conflict: int | None = None


_RARE: Final = msgspec.json.Decoder(_Rare)


class _File(msgspec.Struct):
    """What is known of one file; `event_time` is None while only other files name it, as their parent."""

    did: str
    number: int | None = None
    event_time: int | None = None
    last_day: int | None = None
    filename: str | None = None
    details: Details | None = None
    rare: _Rare = msgspec.field(default_factory=_Rare)


class IndexWriter:
    """The one connection that writes an index, which is made if there is none.

    Args:
        path: the database; its folder exists.
        ancestors_max: of files with more ancestors only the edges are kept.

    Raises:
        apsw.Error: the database is damaged or of another format, or the disk fails or is full; also raised
            by each method.
    """

    def __init__(self, path: Path, *, ancestors_max: int) -> None:
        self._ancestors_max = ancestors_max
        self._details: dict[int, Details] = {}
        self._numbers: dict[Details, int] = {}
        self._forgetting: Forgetting | None = None
        self._found: dict[str, _Row] = {}
        is_new = not path.exists()
        self._connection = apsw.Connection(str(path))
        if is_new:
            path.chmod(file_mode(path.parent))
        self._connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        # The log stays beside the database: going on needs no inode then, and reading no right to make files.
        self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._connection.pragma("journal_mode", "wal")
        self._connection.pragma("synchronous", "FULL")
        number = self._connection.pragma("user_version")
        if not number:
            with self._connection:
                self._connection.execute(sql.SCHEMA)
                self._connection.pragma("user_version", sql.FORMAT)
        elif number != sql.FORMAT:
            raise apsw.SchemaChangeError(f"its format is {number}")
        self._connection.create_scalar_function("tell_stored", self._tell_stored)

    def close(self) -> None:
        """Release the database."""
        self._connection.close()

    @property
    def place(self) -> tuple[str, int]:
        """See `place_in`."""
        return place_in(self._connection)

    def add(self, sightings: Iterable[Sighting], place: tuple[str, int]) -> None:
        """Add what entries say and move the place past them, durably, in one transaction."""
        try:
            with self._connection:
                waiting = iter(sightings)
                while part := list(islice(waiting, _SIGHTINGS_AT_ONCE)):
                    self._add(part)
                self._connection.execute(sql.CLEAR_PLACE)
                self._connection.execute(sql.SET_PLACE, place)
        except BaseException:
            # They may know numbers of details that were not kept.
            self._details.clear()
            self._numbers.clear()
            raise

    @property
    def aged(self) -> int:
        """The last day that was forgotten as of; 0 before the first."""
        return cast("int", self._connection.execute(sql.AGED).get)

    def forget(self, day: int, retain_days: float) -> bool:
        """Go on with what `Forgetting` does as of a day, durably, in one transaction; True at the end.

        Nothing is to be added before that.
        """
        forgetting = self._forgetting
        if forgetting is None or forgetting.day != day:
            forgetting = Forgetting(self._connection, day, retain_days)
        self._forgetting = None
        with self._connection:
            is_done = forgetting.step()
        if is_done:
            self._details.clear()
            self._numbers.clear()
        else:
            self._forgetting = forgetting
        return is_done

    def _add(self, unsorted: Iterable[Sighting]) -> None:
        # As they come, since most parents come before their children: then the closure grows downwards only.
        edges = dict.fromkeys(
            (parent, seen.did) for seen in unsorted if seen.parents for parent in seen.parents
        )
        sightings = sorted(unsorted, key=attrgetter("did"))
        looked_up: set[str] = set()  # most files are new, and seen once
        before: str | None = None
        for seen in sightings:
            if seen.did == before or seen.content is not None:
                looked_up.add(seen.did)
            before = seen.did
        named = dict.fromkeys(did for edge in edges for did in edge)
        stored = self._stored(sorted(looked_up.union(named)))
        files = {did: _File(did) for did in looked_up}
        files |= {did: self._file(row) for did, row in stored.items()}
        once: list[Sighting] = []
        for seen in sightings:
            file = files.get(seen.did)
            if file is None:
                once.append(seen)
            else:
                _merge(file, seen)
        self._note_other_parents(sightings, files, stored.keys())
        numbers, new = self._numbered(named, files)
        left = numbers.copy()
        others = self._put_new(once, left)
        files |= {did: self._file(row) for did, row in others.items()}
        for seen in once if others else ():
            if seen.did in others:
                _merge(files[seen.did], seen)
        stored |= others
        for did, number in left.items():
            files.setdefault(did, _File(did)).number = number
        rows = [(did, self._row(file)) for did, file in files.items()]
        self._connection.executemany(sql.PUT_FILE, [row for did, row in rows if row != stored.get(did)])
        self._add_edges([(numbers[parent], numbers[did]) for parent, did in edges], new)

    def _put_new(self, once: Iterable[Sighting], numbers: dict[str, int]) -> dict[str, _Row]:
        """Put files that are seen once, with their numbers, which are removed from `numbers`.

        Those that are stored already stay as they are. Their rows are returned.
        """
        values: list[object] = []
        of_details = self._numbers
        for one in once:
            did, at_ms, details = one.did, one.at_ms, one.details
            later_days = one.last_ms // DAY_MS - at_ms // DAY_MS
            shared = of_details.get(details) or self._number_of(details)
            values += (did, numbers.pop(did, None), at_ms, later_days, one.filename, shared, None)
        self._found = {}
        size = _FILES_AT_ONCE * sql.VALUES_OF_A_FILE
        whole = len(values) // size * size
        parts = (values[at : at + size] for at in range(0, whole, size))
        self._connection.executemany(sql.put_new_files(_FILES_AT_ONCE), parts)
        if left := values[whole:]:
            self._connection.execute(sql.put_new_files(len(left) // sql.VALUES_OF_A_FILE), left)
        return self._found

    def _tell_stored(self, *row: Any) -> bool:  # noqa: ANN401 - values of SQLite
        self._found[row[0]] = cast("_Row", row)
        return False

    def _numbered(
        self, named: Iterable[str], files: Mapping[str, _File]
    ) -> tuple[dict[str, int], Container[int]]:
        """The numbers of all files that edges name, and which of them are new."""
        last = cast("int", self._connection.execute(sql.LAST_NUMBER).get)
        numbers: dict[str, int] = {}
        end = last + 1
        for did in named:
            file = files.get(did)
            if file is None or file.number is None:
                numbers[did] = end
                end += 1
            else:
                numbers[did] = file.number
        return numbers, range(last + 1, end)

    def _note_other_parents(
        self, sightings: Iterable[Sighting], files: Mapping[str, _File], stored: Collection[str]
    ) -> None:
        """Note the files of which not every event that names parents names the same."""
        again = [seen for seen in sightings if seen.parents and seen.did in files]
        known: defaultdict[str, set[str]] = defaultdict(set)
        dids = {seen.did: None for seen in again if seen.did in stored}
        for did, parent in self._connection.executemany(sql.PARENTS, sql.bindings_of(dids)):
            known[cast("str", did)].add(cast("str", parent))
        for seen in again:
            named = {parent for parent in seen.parents if parent != seen.did}
            if known[seen.did] and named and known[seen.did] != named:
                files[seen.did].rare.conflict = 1
            known[seen.did] |= named

    def _stored(self, dids: Iterable[str]) -> dict[str, _Row]:
        rows = self._connection.executemany(sql.FILES, sql.bindings_of(dids))
        return {row[0]: row for row in cast("Iterable[_Row]", rows)}

    # -- details ---------------------------------------------------------------------------------------------

    def _file(self, row: _Row) -> _File:
        did, number, event_time, later_days, filename, shared, rare = row
        last_day = None if event_time is None or later_days is None else event_time // DAY_MS + later_days
        details = None if shared is None else self._details_of(shared)
        said = _Rare() if rare is None else _RARE.decode(rare)
        return _File(did, number, event_time, last_day, filename, details, said)

    def _row(self, file: _File) -> _Row:
        event_time, last_day = file.event_time, file.last_day
        later_days = None if event_time is None or last_day is None else last_day - event_time // DAY_MS
        shared = None if file.details is None else self._number_of(file.details)
        rare = None if file.rare == _Rare() else msgspec.json.encode(file.rare).decode()
        return file.did, file.number, event_time, later_days, file.filename, shared, rare

    def _details_of(self, number: int) -> Details:
        if number not in self._details:
            text = self._connection.execute(sql.DETAILS, (number,)).get
            self._remember(number, msgspec.json.decode(cast("str", text), type=Details))
        return self._details[number]

    def _number_of(self, details: Details) -> int:
        number = self._numbers.get(details)
        if number is None:
            text = msgspec.json.encode(details).decode()
            stored = self._connection.execute(sql.NUMBER_OF_DETAILS, (text,)).get
            if stored is None:
                said = {"has_producer": bool(details.producers), "fields": text}
                stored = self._connection.execute(sql.PUT_DETAILS, said).get
            number = cast("int", stored)
            self._remember(number, details)
        return number

    def _remember(self, number: int, details: Details) -> None:
        if len(self._details) >= _DETAILS_REMEMBERED:
            self._details.clear()
            self._numbers.clear()
        self._details[number] = details
        self._numbers[details] = number

    # -- edges -----------------------------------------------------------------------------------------------

    def _add_edges(self, edges: Collection[tuple[int, int]], new: Container[int]) -> None:
        """Add edges, each from a parent to a child, and all that follows from them.

        Of new files, by their numbers, nothing is stored.
        """
        if not edges:
            return
        below: dict[int, set[int]] = {child: set() for _, child in edges}
        for child, one in self._of_each(sql.CLOSURE_DOWN, (child for child in below if child not in new)):
            below[child].add(one)
        touched = {parent for parent, _ in edges}.union(below, *below.values())
        old = [number for number in touched if number not in new]
        above: defaultdict[int, Depths] = defaultdict(dict)
        for one, ancestor, depth in self._of_each(sql.CLOSURE_UP, old):
            above[one][ancestor] = depth
        deep = [number for (number,) in self._of_each(sql.IS_DEEP, old)]
        closure = Closure(above, deep, below, self._ancestors_max)
        for parent, child in edges:
            closure.add(parent, child)
        self._connection.executemany(sql.CUT_CLOSURE, closure.cut())
        self._connection.executemany(sql.PUT_CLOSURE, closure.grown())
        self._connection.executemany(sql.PUT_DEEP, [(number,) for number in closure.deepened()])

    def _of_each(self, query: str, numbers: Iterable[int]) -> Iterable[tuple[Any, ...]]:
        return self._connection.executemany(query, [(number,) for number in numbers])


def _merge(file: _File, seen: Sighting) -> None:
    """Add what was seen to what is known: commutative, associative and idempotent."""
    is_other_name = file.filename is not None and seen.filename not in {None, file.filename}
    if is_other_name or (file.details is not None and file.details.process != seen.details.process):
        file.rare.conflict = 1
    file.event_time = seen.at_ms if file.event_time is None else min(file.event_time, seen.at_ms)
    last_day = seen.last_ms // DAY_MS
    file.last_day = last_day if file.last_day is None else max(file.last_day, last_day)
    file.filename = _greater(file.filename, seen.filename)
    file.details = seen.details if file.details is None else _together(file.details, seen.details)
    if seen.content is not None:
        _merge_content(file.rare, seen.content)


def _merge_content(known: _Rare, content: Content) -> None:
    known.version = _greater(known.version, content.version)
    said = (content.fingerprint or "", content.input_size or 0)
    if content.fingerprint is not None and said > (known.fingerprint or "", known.input_size or 0):
        known.fingerprint, known.input_size = content.fingerprint, content.input_size
    if content.is_forced:
        known.forced = 1


def _together(known: Details, more: Details) -> Details:
    if known == more:
        return known
    return Details(
        max(known.process, more.process),
        _union(known.sinks, more.sinks),
        _union(known.states, more.states),
        max(known.system, more.system),
        _union(known.inputs, more.inputs),
        _union(known.producers, more.producers),
    )


def _union(known: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    return known if all(one in known for one in more) else tuple(sorted({*known, *more}))


def _greater(known: str | None, more: str | None) -> str | None:
    return known if more is None else more if known is None else max(known, more)
