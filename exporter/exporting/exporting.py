"""The export: copies changed compacted files to a destination, and merges late files with the files there.

The files with relations go there, too. The destination uses the same names as the layout. A file is written
there whole, and replaces only the exact file that was seen there; if somebody else wrote one, its rows and
ours are merged. So concurrent, killed and repeated exports all give the same result, unless a record was
taken back after an export that was killed before it noted its file: the destination keeps that record.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets.arrow import SCHEMA
from waybill.transport.files import Files

from .. import parquet
from ..directory import FileStamp, files_of
from ..names import COMPACTED, LATE, RELATIONS, Hour, relative as relative_to
from ..parallel import in_parallel
from ..parquet import (
    WINDOW_ROWS,
    Covers,
    Room,
    Rules,
    check_seal,
    finish_sealed,
    in_windows,
    merge_table,
    seal_in,
    seal_of,
)
from ..relations import merge_relations, relation_files
from ..removal import remove
from ..tombstones import was_damaged
from .destination import Destination, DestinationError, ReplacedError, Version, key_of
from .manifest import ListedFile, list_files
from .state import ExportedFile, ExportState

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from _typeshed import ReadableBuffer

WORKERS: Final = 8
"""How many days are exported at once, and how many files are in memory."""

_TRIES: Final = 20
_FAILURES_MAX: Final = 3

Progress = Callable[[int, int], None]


class Exported(msgspec.Struct, frozen=True):
    """The result of an export; paths are relative to the root.

    Attributes:
        copied: files that were copied unchanged to the destination.
        merged: files whose rows were merged with the destination's.
        unchanged: how many files the destination already had.
        removed: files that were deleted from this root.
        size_bytes: how many bytes were written to the destination.
        failed: by path, a sentence with the reason why the file was not exported.
    """

    copied: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    unchanged: int = 0
    removed: tuple[str, ...] = ()
    size_bytes: int = 0
    failed: Mapping[str, str] = {}


def export(
    root: Path | str,
    destination: Destination,
    *,
    delete_after: bool = False,
    dry_run: bool = False,
    files: Files | None = None,
    on_progress: Progress | None = None,
) -> Exported:
    """Copy the files that a destination, made by `open_destination`, does not have yet.

    With `delete_after`, exported files are deleted here, as an age-off does. With `dry_run`, the report says
    what would be copied, and the destination is not accessed. `on_progress` is called with the number of
    finished files and their total.

    Raises:
        DestinationError: the destination is the root itself.
        OSError: the root cannot be read or written.
    """
    root = Path(root)
    if Path(destination.name).resolve() == root.resolve():
        raise DestinationError(f"{root} cannot be exported to itself; give a different folder")
    return _Export(root, destination, files or Files(), on_progress).run(
        delete_after=delete_after, dry_run=dry_run
    )


class _DamagedFileError(DestinationError):
    """A file at the destination is damaged; the others may be fine."""


class _Day(msgspec.Struct):
    """The export's result for one system and day."""

    copied: list[str] = []
    merged: list[str] = []
    unchanged: int = 0
    removed: tuple[str, ...] = ()
    size_bytes: int = 0
    failed: dict[str, str] = {}
    written: dict[str, tuple[Version, ListedFile]] = {}


class _Export:
    def __init__(
        self, root: Path, destination: Destination, files: Files, on_progress: Progress | None
    ) -> None:
        self._root = root
        self._destination = destination
        self._files = files
        self._on_progress = on_progress
        self._state = ExportState(root, key_of(destination), files)
        self._seen = itertools.count(1)
        self._total = 0
        self._failures = 0

    def run(self, *, delete_after: bool, dry_run: bool) -> Exported:
        # Late files come after compacted files, because they are merged with them.
        days: dict[tuple[str, str], list[Path]] = {}
        for kind in (COMPACTED, LATE):
            for day, paths in files_of(self._root / kind).items():
                days.setdefault(day, []).extend(paths)
        for day, path in relation_files(self._root):
            days.setdefault(day, []).append(path)
        self._total = sum(map(len, days.values()))
        if not dry_run:
            self._state.name(self._destination.name)
        done = in_parallel(
            lambda item: self._day(*item[0], item[1], delete_after=delete_after, dry_run=dry_run),
            sorted(days.items()),
            workers=WORKERS,
        )
        return Exported(
            copied=tuple(path for day in done for path in day.copied),
            merged=tuple(path for day in done for path in day.merged),
            unchanged=sum(day.unchanged for day in done),
            removed=tuple(path for day in done for path in day.removed),
            size_bytes=sum(day.size_bytes for day in done),
            failed={path: why for day in done for path, why in day.failed.items()},
        )

    def _day(self, system: str, day: str, paths: list[Path], *, delete_after: bool, dry_run: bool) -> _Day:
        done, exported = _Day(), self._state.load(system, day)
        before = dict(exported)
        for path in paths:
            self._try(path, exported, done, dry_run=dry_run)
            if self._on_progress:
                self._on_progress(next(self._seen), self._total)  # it counts without end
        if dry_run:
            return done
        try:
            if done.written:
                list_files(self._destination, system, day, done.written)
        except DestinationError as error:
            # An unlisted file does not count as exported: the next export looks at it again.
            exported = before
            done.failed |= dict.fromkeys((*done.copied, *done.merged), str(error))
            done.copied, done.merged = [], []
        if exported != before:
            self._state.save(system, day, exported)
        if delete_after:
            safe = {
                path: exported[relative].mark
                for path in paths
                if (relative := relative_to(self._root, path)) in exported and not _is_of_relations(relative)
            }
            done.removed = remove(self._root, safe, self._files)
        return done

    def _try(self, path: Path, exported: dict[str, ExportedFile], done: _Day, *, dry_run: bool) -> None:
        relative = relative_to(self._root, path)
        try:
            with path.open("rb") as file:
                stamp, known = FileStamp.of(os.fstat(file.fileno())), exported.get(relative)
                if known is not None and known.mark == stamp:
                    done.unchanged += 1
                    return
                if dry_run:
                    done.copied.append(relative)
                    return
                if self._failures >= _FAILURES_MAX:
                    done.failed[relative] = "it was not tried because the destination fails; export again"
                    return
                data = file.read()
            seal = seal_of(data)
            if seal is not None:
                # An altered file must not replace an undamaged one at the destination.
                check_seal(io.BytesIO(data), seal)
            exported[relative] = self._send(relative, data, stamp, known, done)
            self._failures = 0
        except FileNotFoundError:
            return
        except parquet.DAMAGED as error:
            done.failed[relative] = parquet.unreadable(path, error, root=self._root)
        except DestinationError as error:
            self._failures += not isinstance(error, _DamagedFileError)
            done.failed[relative] = str(error)

    def _send(
        self, relative: str, data: bytes, stamp: FileStamp, known: ExportedFile | None, done: _Day
    ) -> ExportedFile:
        """Put one file in place, merged with rows that others put there."""
        source = hashlib.sha256(data).hexdigest()
        target, late = _target(relative)
        ours = ListedFile.of(data)
        # The file that we put there last may be replaced. Somebody else's file has rows that ours lacks, and
        # so has our own if the file here was quarantined and started over since then.
        must_merge = known is None or known.merged or late or self._was_damaged(relative)
        replaces = None if known is None or must_merge else known.version
        if known is None or replaces is not None:
            try:
                version = self._destination.write(target, data, replaces)
            except ReplacedError:
                pass
            else:
                return self._wrote(relative, ExportedFile(stamp, source, version), ours, done)
        for _ in range(_TRIES):
            found = self._destination.read(target)
            merged: ReadableBuffer = data
            if found is not None:
                merged = self._merged(target, found[0], data)
            listed = ListedFile.of(merged)
            if found is not None and listed.sha256 == hashlib.sha256(found[0]).hexdigest():
                done.unchanged += 1
                _list(done, target, found[1], listed)
                return ExportedFile(stamp, source, found[1], merged=listed.sha256 != source)
            try:
                version = self._destination.write(target, merged, None if found is None else found[1])
            except ReplacedError:
                continue
            exported = ExportedFile(stamp, source, version, merged=listed.sha256 != source)
            return self._wrote(relative, exported, listed, done)
        raise DestinationError(
            f"{self._destination.name}/{target} keeps being written by others; export again"
        )

    def _wrote(self, relative: str, exported: ExportedFile, listed: ListedFile, done: _Day) -> ExportedFile:
        (done.merged if exported.merged else done.copied).append(relative)
        done.size_bytes += listed.size_bytes
        _list(done, _target(relative)[0], exported.version, listed)
        return exported

    def _merged(self, target: str, theirs: bytes, ours: bytes) -> ReadableBuffer:
        where = f"{self._destination.name}/{target}"
        if not _is_of_relations(target):
            return _merge(where, theirs, ours)
        try:
            return merge_relations(theirs, ours)
        except parquet.DAMAGED as error:
            raise _DamagedFileError(parquet.unreadable(where, error, root=None)) from None

    def _was_damaged(self, relative: str) -> bool:
        if _is_of_relations(relative):
            return False
        system, day, name = PurePosixPath(relative).parts[len(COMPACTED.parts) :]
        return was_damaged(self._root, system, Hour(day, PurePosixPath(name).stem))


def _is_of_relations(relative: str) -> bool:
    return relative.startswith(f"{RELATIONS}/")


def _list(done: _Day, target: str, version: Version, listed: ListedFile) -> None:
    """Note a file for the manifest, which lists the files with records."""
    if not _is_of_relations(target):
        done.written[target] = (version, listed)


def _target(relative: str) -> tuple[str, bool]:
    """The path of a file at the destination, and whether it is a late file in this root."""
    late = relative.startswith(f"{LATE}/")
    return (f"{COMPACTED}{relative.removeprefix(str(LATE))}" if late else relative), late


def _merge(where: str, theirs: bytes, ours: bytes) -> ReadableBuffer:
    """Merge both files, one window at a time; return the bytes of theirs if ours has nothing new."""
    file, more = _open_theirs(where, theirs), parquet.open_bytes(ours)
    spans = [*parquet.spans(file.metadata), *parquet.spans(more.metadata)]
    rows = min(sum(span.rows for span in spans), WINDOW_ROWS)
    encoder = parquet.Encoder(parquet.COMPACTED_FILTERS, rows=rows)
    is_new = False

    def read(room: Room) -> tuple[pa.Table, pa.Table]:
        try:
            known = parquet.read_window(file, room)
        except parquet.DAMAGED as error:
            raise _DamagedFileError(parquet.unreadable(where, error, root=None)) from None
        return known, parquet.read_window(more, room)

    for known, added in in_windows(spans, WINDOW_ROWS, read):
        merged = merge_table(parquet.join([known, added]))
        is_new = is_new or not merged.cast(SCHEMA).equals(merge_table(known).cast(SCHEMA))
        if merged.num_rows:
            encoder.add(merged)
    if not is_new:
        return theirs
    metadata, added = file.metadata.metadata, more.metadata.metadata
    covers = Covers.read(metadata).uniting(Covers.read(added))
    rules = Rules.read(metadata).uniting([Rules.read(added)])
    return finish_sealed(encoder, covers.metadata() | rules.metadata(), seal_in(metadata))[0]


def _open_theirs(where: str, theirs: bytes) -> pq.ParquetFile:
    try:
        file = parquet.open_bytes(theirs)
        metadata = file.metadata.metadata
        Covers.read(metadata)
        Rules.read(metadata)
        seal = seal_in(metadata)
        if seal is not None:
            check_seal(io.BytesIO(theirs), seal)
    except parquet.DAMAGED as error:
        # Merging it would seal it as undamaged.
        raise _DamagedFileError(parquet.unreadable(where, error, root=None)) from None
    return file
