"""Making the catalog of a root, and keeping it up with the root's ledger.

A step follows the ledger, reads the files of some hours, and publishes one segment with the new contents;
small segments are merged into a large one. So a step ends soon, and a crash loses one step at most:

1. The files of the segment are published under a serial that no contents name.
2. The contents are replaced.
3. Files that the new contents do not name are removed.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.exporter import parquet
from waybill.exporter.directory import FileStamp, compacted_file, compacted_files, compacted_folders, names
from waybill.exporter.ledger import Position, follow_ledger
from waybill.exporter.names import CATALOG, Hour, relative
from waybill.exporter.query import SUMMED_COLUMNS
from waybill.transport.files import Files, publish
from waybill.transport.locks import locked

from .contents import CONTENTS, CataloguedFile, Contents, Segment, SegmentFiles, read_contents, read_files
from .keys import COLUMNS, NUMBERS, in_order, keys_of
from .kinds import Kind, Sum, numbers_of, restore, store, sums_with
from .runs import Run, encode_run
from .sealing import DamagedError, sealed, set_aside

log = logging.getLogger("waybill.lineage")

OnProgress = Callable[[int, int], None]
"""Called with the hours that have been read, and their total."""

STEP_KEYS: Final = 2**21
"""A step reads files with about so many keys: 16 MB."""

STEP_FILES: Final = 500
_MERGED_AT_ONCE: Final = 8
_MERGED_KEYS_MAX: Final = 2**23
"""A segment has at most so many keys after a merge: 64 MB."""
_SLICES: Final = 8
LOCK: Final = ".lock"


class CatalogReport(msgspec.Struct, frozen=True):
    """What a catalog has.

    Attributes:
        files: how many compacted and late files it knows.
        size_bytes: how large it is.
        unread: the hours with a file that could not be read, as ``YYYYMMDD/HH``; every question reads these.
    """

    files: int = 0
    size_bytes: int = 0
    unread: tuple[str, ...] = ()


def keep_catalog(
    root: Path, *, files: Files | None = None, on_progress: OnProgress | None = None
) -> CatalogReport:
    """Make the catalog of a root, or bring it up to date.

    A root without a ledger gets none.

    Raises:
        OSError: the root cannot be read or written.
    """
    total, again = 0, True
    while (contents := keep_step(root, files=files, again=again)) is not None:
        again = False
        left = len(contents.waiting)
        total = max(total, left + 1)
        if on_progress is not None:
            on_progress(total - left, total)
        if not left:
            return report_of(root, contents)
    return CatalogReport()


def keep_step(
    root: Path, *, files: Files | None = None, step_keys: int = STEP_KEYS, again: bool = False
) -> Contents | None:
    """Do one step of `keep_catalog`: return the new contents; None if the root has no ledger.

    With `again`, files that could not be read are tried again, and the folders are compared with the files
    that the catalog knows: somebody may have put a file there, or deleted one.

    Raises:
        OSError: the root cannot be read or written.
    """
    if follow_ledger(root, None) is None:
        return None
    files = files or Files()
    files.make_folder(root / CATALOG)
    with locked(root / CATALOG / LOCK):
        while True:
            try:
                return Step(root, files, step_keys).run(again=again)
            except DamagedError as error:
                set_aside(error)  # The next try finds that it is gone, and reads its hours again.


def forget_catalog(root: Path, *, files: Files | None = None) -> None:
    """Remove the catalog of a root, if it has one; raises `OSError` if that fails."""
    files = files or Files()
    if not (root / CATALOG).is_dir():
        return
    with locked(root / CATALOG / LOCK):
        files.remove(root / CONTENTS)
        _sweep(root, files, ())


def report_of(root: Path, contents: Contents) -> CatalogReport:
    """What a catalog with some contents has."""
    size_bytes = 0
    for name in names(root / CATALOG):
        with contextlib.suppress(FileNotFoundError):
            size_bytes += (root / CATALOG / name).stat().st_size
    return CatalogReport(
        sum(one.files for one in contents.segments) - len(contents.gone),
        size_bytes,
        tuple(f"{hour.day}/{hour.hour}" for hour in contents.unread),
    )


class Catalogued(NamedTuple):
    """What the catalog takes from a file."""

    file: CataloguedFile
    sums: Mapping[Kind, Sum]
    keys: pa.UInt64Array


class _ChangedError(Exception):
    """A file was replaced while it was read."""


class Step:
    """One step, under the catalog's lock."""

    def __init__(self, root: Path, files: Files, step_keys: int) -> None:
        self._root = root
        self._files = files
        self._step_keys = step_keys
        self._files_of = functools.cache(functools.partial(read_files, root))

    def run(self, *, again: bool) -> Contents | None:
        """Follow the ledger, read files, merge segments, and replace the contents."""
        before = self._known()
        contents = before or self._begun()
        if contents is None:
            return None
        if again:
            contents = _waiting_for(contents, contents.unread)
        contents = self._without_damaged(contents)
        if again:
            contents = _waiting_for(contents, self._hours_that_differ(contents))
        followed = follow_ledger(self._root, contents.position)
        if followed is None:  # the root was replaced in this very moment
            return contents
        contents = _waiting_for(contents, followed.hours)
        contents = msgspec.structs.replace(contents, position=followed.position)
        if contents.waiting:
            contents = self._read(contents)
        return self._published(contents, before)

    def _published(self, contents: Contents, before: Contents | None) -> Contents:
        """Merge segments, and replace the contents before."""
        contents = self._merged(contents)
        if contents != before:
            publish(self._files, self._root / CONTENTS, sealed(contents))
        _sweep(self._root, self._files, contents.segments)
        return contents

    def _known(self) -> Contents | None:
        """The contents to go on with, if there are any that can be used."""
        try:
            known = read_contents(self._root)
        except DamagedError as error:
            log.warning("%s", error)
            return None
        if known is None or follow_ledger(self._root, known.position) is None:
            return None
        return known

    def _begun(self) -> Contents | None:
        """Contents that know no file yet."""
        begins = follow_ledger(self._root, None)
        if begins is None:
            return None
        empty = self._empty(begins.position)
        return _waiting_for(empty, {*compacted_folders(self._root), *begins.hours})

    def _empty(self, position: Position) -> Contents:
        # A serial is never used again, so that no reader takes a new segment for an old one.
        there = [int(name[:10]) for name in names(self._root / CATALOG) if name[:10].isdecimal()]
        return Contents(position=position, serial=max(there, default=0) + 1)

    def _hours_that_differ(self, contents: Contents) -> set[Hour]:
        """The hours whose folders do not have the files that the contents have."""
        gone = frozenset(contents.gone)
        known: defaultdict[Hour, set[str]] = defaultdict(set)
        for one in contents.segments:
            for file in self._files_of(one).files:
                if file.number not in gone:
                    known[file.hour].add(file.path)
        there = {
            hour: {relative(self._root, compacted_file(folder, hour)) for folder in folders}
            for hour, folders in compacted_folders(self._root).items()
        }
        return {hour for hour in known.keys() | there.keys() if known.get(hour) != there.get(hour)}

    def _without_damaged(self, contents: Contents) -> Contents:
        """The contents without segments that lack a file: a reader has set it aside."""
        there = set(names(self._root / CATALOG))
        hours: set[Hour] = set()
        whole = []
        for one in contents.segments:
            if {one.files_name, one.keys_name} <= there:
                whole.append(one)
                continue
            try:
                hours.update(file.hour for file in self._files_of(one).files)
            except FileNotFoundError:
                hours.update(compacted_folders(self._root))
        if len(whole) == len(contents.segments):
            return contents
        return _waiting_for(msgspec.structs.replace(contents, segments=tuple(whole)), hours)

    def _read(self, contents: Contents) -> Contents:
        """Read the files of waiting hours, the newest first, until there are keys enough for a step."""
        waiting, unread, doubled = list(contents.waiting), set(contents.unread), set(contents.doubled)
        gone, number = set(contents.gone), contents.number
        read: list[CataloguedFile] = []
        sums: list[Mapping[Kind, Sum]] = []
        keys: list[pa.UInt64Array] = []
        there: dict[Hour, list[Path]] = {}
        while waiting and sum(map(len, keys)) < self._step_keys and len(read) < STEP_FILES:
            hour = waiting[0]
            if hour not in there:
                there = compacted_files(self._root, [one for one in waiting if one.day == hour.day])
            stale = self._files_known(contents, hour)
            unread.discard(hour)
            systems = [path.parent.parent.name for path in there[hour]]
            (doubled.add if len(set(systems)) < len(systems) else doubled.discard)(hour)
            for path in there[hour]:
                place = relative(self._root, path)
                try:
                    stamp = FileStamp.of(path.stat())
                    if place in stale and stale[place].stamp == stamp:
                        del stale[place]
                        continue
                    file, counted, found = _read_file(path, place, number, stamp)
                except FileNotFoundError:
                    continue
                except (*parquet.DAMAGED, _ChangedError):
                    unread.add(hour)  # Questions read it themselves, and say what is wrong with it.
                    continue
                read.append(file)
                sums.append(counted)
                keys.append(found)
                number += 1
            gone.update(one.number for one in stale.values())
            del waiting[0]
        contents = msgspec.structs.replace(
            contents,
            gone=tuple(sorted(gone)),
            waiting=tuple(waiting),
            unread=tuple(sorted(unread)),
            doubled=tuple(sorted(doubled)),
            number=number,
        )
        return self._with_segment(contents, read, sums, in_order(keys)) if read else contents

    def _files_known(self, contents: Contents, hour: Hour) -> dict[str, CataloguedFile]:
        """The files of an hour, by path, as the contents have them."""
        gone = set(contents.gone)
        return {
            file.path: file
            for one in contents.segments
            if one.first <= hour <= one.last
            for file in self._files_of(one).files
            if file.hour == hour and file.number not in gone
        }

    def _with_segment(
        self,
        contents: Contents,
        read: list[CataloguedFile],
        sums: Iterable[Mapping[Kind, Sum]],
        keys: pa.UInt64Array,
    ) -> Contents:
        """Publish a segment, and add it to the contents."""
        hours, numbers = [file.hour for file in read], [file.number for file in read]
        one = Segment(
            contents.serial, len(read), len(keys), min(hours), max(hours), min(numbers), max(numbers)
        )
        publish(self._files, self._root / CATALOG / one.files_name, sealed(SegmentFiles(read, store(sums))))
        publish(self._files, self._root / CATALOG / one.keys_name, encode_run(keys))
        return msgspec.structs.replace(
            contents, segments=(*contents.segments, one), serial=contents.serial + 1
        )

    def _merged(self, contents: Contents) -> Contents:
        """The contents after the merges that are due."""
        gone = frozenset(contents.gone)
        sizes: defaultdict[int, list[Segment]] = defaultdict(list)
        for one in contents.segments:
            left = one.files
            if any(one.first_number <= number <= one.last_number for number in gone):
                left = sum(file.number not in gone for file in self._files_of(one).files)
            if 2 * left < one.files:
                contents = self._merge(contents, [one])
            else:
                sizes[one.keys.bit_length() // (_MERGED_AT_ONCE.bit_length() - 1)].append(one)
        for alike in sizes.values():
            some = alike[:_MERGED_AT_ONCE]
            if len(some) == _MERGED_AT_ONCE and sum(one.keys for one in some) <= _MERGED_KEYS_MAX:
                contents = self._merge(contents, some)
        return contents

    def _merge(self, contents: Contents, some: Sequence[Segment]) -> Contents:
        """Make one segment of some, without the files that are gone."""
        gone = frozenset(contents.gone)
        every: list[tuple[CataloguedFile, Mapping[Kind, Sum]]] = []
        for one in some:
            of_one = self._files_of(one)
            every += zip(of_one.files, restore(of_one.sums, len(of_one.files)), strict=True)
        stay = [(file, counted) for file, counted in every if file.number not in gone]
        left = msgspec.structs.replace(
            contents,
            segments=tuple(one for one in contents.segments if one not in some),
            gone=tuple(sorted(gone.difference(file.number for file, _ in every))),
        )
        if not stay:
            return left
        try:
            runs = [Run(self._root / CATALOG / one.keys_name) for one in some]
            for run in runs:
                run.check()
        except DamagedError as error:
            set_aside(error)  # The next step makes it again.
            return contents
        files, sums = zip(*stay, strict=True)
        return self._with_segment(left, list(files), sums, _united([run.keys for run in runs], gone))


def _waiting_for(contents: Contents, hours: Iterable[Hour]) -> Contents:
    waiting = tuple(sorted({*contents.waiting, *hours}, reverse=True))
    return msgspec.structs.replace(contents, waiting=waiting)


def _read_file(path: Path, place: str, number: int, stamp: FileStamp) -> Catalogued:
    """What the catalog keeps of a compacted or late file, the sums of its records, and its keys.

    Raises:
        _ChangedError: it was replaced meanwhile.
        DAMAGED: it cannot be read.
    """
    read = catalogued(parquet.open_selectable(path), place, number, stamp)
    if FileStamp.of(path.stat()) != stamp:
        raise _ChangedError
    return read


def catalogued(file: parquet.Selectable, place: str, number: int, stamp: FileStamp) -> Catalogued:
    """Read an open file, a row group at a time: what the catalog keeps of it, its sums, and its keys.

    Raises:
        DAMAGED: it cannot be read.
    """
    spans = parquet.spans(file.metadata)
    *_, day, name = place.split("/")
    hour_ms = Hour(day, name[:2]).start_ms
    keys: list[pa.UInt64Array] = []
    sums: dict[Kind, Sum] | None = {}
    for at in range(file.metadata.num_row_groups):
        part = file.group(at, [*COLUMNS, *SUMMED_COLUMNS])
        keys.append(keys_of(part, number))
        sums = sums_with(sums, part, hour_ms)
        del part  # before the next is read
    first_ms, last_ms = min(one.first_ms for one in spans), max(one.last_ms for one in spans)
    facts = (number, place, file.metadata.num_rows, first_ms, last_ms, stamp)
    return Catalogued(CataloguedFile(*facts, is_summed=sums is not None), sums or {}, in_order(keys))


def _united(runs: Sequence[memoryview], gone: Collection[int]) -> pa.UInt64Array:
    """The keys of several runs in order, without those of files that are gone; sorted a slice at a time."""
    arrays = [pa.Array.from_buffers(pa.uint64(), len(one), [None, pa.py_buffer(one)]) for one in runs]
    dropped = numbers_of(pa.uint64(), array("Q", sorted(gone)))
    slices = []
    for at in range(_SLICES):
        parts = []
        for one, keys in zip(runs, arrays, strict=True):
            begin, end = (_place(one, edge) for edge in (at, at + 1))
            part = keys.slice(begin, end - begin)
            if gone:
                numbers = pc.bit_wise_and(part, pa.scalar(NUMBERS - 1, pa.uint64()))
                part = part.filter(pc.invert(pc.is_in(numbers, dropped)))
            parts.append(part)
        slices.append(in_order(parts))
    return pa.concat_arrays(slices)


def _place(keys: memoryview, edge: int) -> int:
    return bisect_left(keys, edge * (2**64 // _SLICES))


def _sweep(root: Path, files: Files, segments: Iterable[Segment]) -> None:
    """Remove what the contents do not name; the caller holds the lock."""
    named = {name for one in segments for name in (one.files_name, one.keys_name)}
    for name in names(root / CATALOG):
        if name not in {*named, LOCK, CONTENTS.name}:
            files.remove(root / CATALOG / name)
