"""The export: compacted files go to a destination, only what changed, and what is late joins what is there.

The destination has the layout's own names. A file is put there whole, and only in place of the very file that
was seen there; where somebody else wrote one, its rows and ours are merged. So several exports, one that was
killed, and one that is run again, all come to the same.
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

from waybill.exporter import parquet
from waybill.exporter.directory import FileStamp, files_of
from waybill.exporter.exporting.destination import (
    Destination,
    DestinationError,
    ReplacedError,
    Version,
    key_of,
)
from waybill.exporter.exporting.manifest import ListedFile, list_files
from waybill.exporter.exporting.state import ExportedFile, ExportState
from waybill.exporter.names import COMPACTED, LATE, Hour
from waybill.exporter.parallel import in_parallel
from waybill.exporter.parquet import (
    WINDOW_ROWS,
    Covers,
    check_seal,
    cut,
    finish_sealed,
    merge_table,
    seal_in,
    seal_of,
)
from waybill.exporter.removal import remove
from waybill.exporter.tombstones import was_damaged
from waybill.facets.arrow import SCHEMA
from waybill.transport.files import Files

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from _typeshed import ReadableBuffer

WORKERS: Final = 8
"""So many days are exported at once, and as many files held in memory."""

_TRIES: Final = 20
_FAILURES_MAX: Final = 3

Progress = Callable[[int, int], None]


class Exported(msgspec.Struct, frozen=True):
    """What an export came to; paths are relative to the root.

    Attributes:
        copied: files that the destination now holds as they are here.
        merged: files whose rows were merged with what the destination held.
        unchanged: how many files the destination had already.
        removed: files that were deleted here.
        size_bytes: what was written to the destination.
        failed: by path, a sentence why it is not there.
    """

    copied: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    unchanged: int = 0
    removed: tuple[str, ...] = ()
    size_bytes: int = 0
    failed: Mapping[str, str] = {}


def export(
    root: Path,
    destination: Destination,
    *,
    delete_after: bool = False,
    dry_run: bool = False,
    files: Files | None = None,
    on_progress: Progress | None = None,
) -> Exported:
    """Copy what a destination does not have yet.

    Args:
        root: the layout's root.
        destination: see `waybill.exporter.open_destination`.
        delete_after: delete here what is there, as an age-off does.
        dry_run: only say what would be copied; the destination is not asked.
        files: the local file system.
        on_progress: called with how many files were seen to, and how many there are.

    Raises:
        DestinationError: the destination is the root itself.
        OSError: the root cannot be read or written.
    """
    if Path(destination.name).resolve() == root.resolve():
        raise DestinationError(f"{root} cannot be exported to itself; give another folder")
    return _Export(root, destination, files or Files(), on_progress).run(
        delete_after=delete_after, dry_run=dry_run
    )


class _DamagedThereError(DestinationError):
    """A file of the destination is damaged, which says nothing about the others."""


class _Day(msgspec.Struct):
    """What an export has done of one system and day."""

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
        self._notes = ExportState(root, key_of(destination), files)
        self._seen = itertools.count(1)
        self._total = 0
        self._failures = 0

    def run(self, *, delete_after: bool, dry_run: bool) -> Exported:
        # Late files after the compacted ones: they join what those made.
        days: dict[tuple[str, str], list[Path]] = {}
        for kind in (COMPACTED, LATE):
            for day, paths in files_of(self._root / kind).items():
                days.setdefault(day, []).extend(paths)
        self._total = sum(map(len, days.values()))
        if not dry_run:
            self._notes.name(self._destination.name)
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
        done, sent = _Day(), self._notes.load(system, day)
        before = dict(sent)
        for path in paths:
            self._try(path, sent, done, dry_run=dry_run)
            if self._on_progress:
                self._on_progress(next(self._seen), self._total)
        if dry_run:
            return done
        try:
            if done.written:
                list_files(self._destination, system, day, done.written)
        except DestinationError as error:
            # What is not listed is not done: it is looked at again.
            sent = before
            done.failed |= dict.fromkeys((*done.copied, *done.merged), str(error))
            done.copied, done.merged = [], []
        if sent != before:
            self._notes.save(system, day, sent)
        if delete_after:
            safe = {path: sent[relative].mark for path in paths if (relative := self._relative(path)) in sent}
            done.removed = remove(self._root, safe, self._files)
        return done

    def _try(self, path: Path, sent: dict[str, ExportedFile], done: _Day, *, dry_run: bool) -> None:
        relative = self._relative(path)
        try:
            with path.open("rb") as file:
                mark, known = FileStamp.of(os.fstat(file.fileno())), sent.get(relative)
                if known is not None and known.mark == mark:
                    done.unchanged += 1
                    return
                if dry_run:
                    done.copied.append(relative)
                    return
                if self._failures >= _FAILURES_MAX:
                    done.failed[relative] = "it was not tried, since the destination fails; export again"
                    return
                data = file.read()
            seal = seal_of(data)
            if seal is not None:
                # An altered file must not replace the undamaged one that may be at the destination.
                check_seal(io.BytesIO(data), seal)
            sent[relative] = self._send(relative, data, mark, known, done)
            self._failures = 0
        except FileNotFoundError:
            return
        except parquet.DAMAGED as error:
            done.failed[relative] = parquet.unreadable(path, error)
        except DestinationError as error:
            self._failures += not isinstance(error, _DamagedThereError)
            done.failed[relative] = str(error)

    def _send(
        self, relative: str, data: bytes, mark: FileStamp, known: ExportedFile | None, done: _Day
    ) -> ExportedFile:
        """Put one file in its place, merged with what others put there."""
        source = hashlib.sha256(data).hexdigest()
        target, late = _target(relative)
        ours = ListedFile.of(data)
        # Our own last file may be replaced; whoever else wrote there has rows that we do not have, and so has
        # what we put there before the file here was damaged and begun anew.
        fresh = known is None or known.merged or late or self._was_damaged(relative)
        replaces = None if known is None or fresh else known.version
        if known is None or replaces is not None:
            try:
                version = self._destination.write(target, data, replaces)
            except ReplacedError:
                pass
            else:
                return self._copied(relative, ExportedFile(mark, source, version), ours, done)
        for _ in range(_TRIES):
            found = self._destination.read(target)
            there = None if found is None else found[1]
            merged: ReadableBuffer = data
            if found is not None:
                merged = _merge(f"{self._destination.name}/{target}", found[0], data)
            listed = ListedFile.of(merged)
            if found is not None and listed.sha256 == hashlib.sha256(found[0]).hexdigest():
                done.unchanged += 1
                done.written[target] = (found[1], listed)
                return ExportedFile(mark, source, found[1], merged=listed.sha256 != source)
            try:
                version = self._destination.write(target, merged, there)
            except ReplacedError:
                continue
            if listed.sha256 == source:
                return self._copied(relative, ExportedFile(mark, source, version), listed, done)
            done.merged.append(relative)
            done.size_bytes += listed.size_bytes
            done.written[target] = (version, listed)
            return ExportedFile(mark, source, version, merged=True)
        raise DestinationError(f"{self._destination.name}/{target} is always written by others; export again")

    def _copied(self, relative: str, sent: ExportedFile, listed: ListedFile, done: _Day) -> ExportedFile:
        done.copied.append(relative)
        done.size_bytes += listed.size_bytes
        done.written[_target(relative)[0]] = (sent.version, listed)
        return sent

    def _was_damaged(self, relative: str) -> bool:
        system, day, name = PurePosixPath(relative).parts[len(COMPACTED.parts) :]
        return was_damaged(self._root, system, Hour(day, PurePosixPath(name).stem))

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()


def _target(relative: str) -> tuple[str, bool]:
    """Where a file goes, and whether it is a late one."""
    late = relative.startswith(f"{LATE}/")
    return (f"{COMPACTED}{relative.removeprefix(str(LATE))}" if late else relative), late


def _merge(where: str, there: bytes, ours: bytes) -> ReadableBuffer:
    """Both files as one, a window at a time; the bytes of theirs where ours has nothing new."""
    file, more = _open_there(where, there), parquet.open_bytes(ours)
    metadata, more_metadata = file.metadata.metadata, more.metadata.metadata
    spans = [*parquet.spans(file.metadata), *parquet.spans(more.metadata)]
    encoder = parquet.Encoder(
        parquet.COMPACTED_FILTERS, rows=min(sum(span.rows for span in spans), WINDOW_ROWS)
    )
    is_new = False
    for window in cut(spans, WINDOW_ROWS):
        try:
            known = parquet.read_window(file, window)
        except parquet.DAMAGED as error:
            raise _DamagedThereError(parquet.unreadable(where, error)) from None
        merged = merge_table(parquet.join([known, parquet.read_window(more, window)]))
        is_new = is_new or not merged.cast(SCHEMA).equals(merge_table(known).cast(SCHEMA))
        if merged.num_rows:
            encoder.add(merged)
    if not is_new:
        return there
    covers = Covers.read(metadata).uniting(Covers.read(more_metadata))
    return finish_sealed(encoder, covers.metadata(), seal_in(metadata))[0]


def _open_there(where: str, there: bytes) -> pq.ParquetFile:
    try:
        file = parquet.open_bytes(there)
        metadata = file.metadata.metadata
        Covers.read(metadata)
        seal = seal_in(metadata)
        if seal is not None:
            check_seal(io.BytesIO(there), seal)
    except parquet.DAMAGED as error:
        # Merged, it would be sealed anew as if nothing were wrong with it.
        raise _DamagedThereError(parquet.unreadable(where, error)) from None
    return file
