"""Compacting one hour: its raw files become one file per system, merged with the existing file.

A crash may come after any of these steps:

1. Every raw file is read. A damaged file is quarantined. A file that cannot be read now is reported, left
   where it is, and tried again next time. No compacted file covers either of them.
2. For each system, the rows that its compacted file does not cover yet are merged into it, and the result is
   published. A compacted file that is damaged, or is not the one that was sealed, is quarantined first.
3. When the files of all systems are durable, the raw files that were read are removed.

Repeating the steps is harmless: rows that a compacted file covers are left out, and the merge drops
duplicates.

Records that arrive for an hour whose compacted file was aged off go into a late file instead, until an export
merges it into the exported file: a compacted file with only a few late rows would replace the full one at the
destination.

An hour with many rows is read and merged one window at a time, and the result is written to disk before it
gets its name, so memory use does not grow with the hour.
"""

from __future__ import annotations

import functools
import io
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from waybill.facets.merge_rule import RecordKey
from waybill.transport.files import Files, publish_alone, sweep

from .. import parquet
from ..directory import raw_files
from ..names import Hour, RawName, compacted_path, hour_of, late_path, raw_folder, safe_name
from ..parquet import Covers, Rules, finish_sealed, in_windows, is_intact, merge_table, without
from ..quarantine import Quarantined, quarantine
from ..tombstones import was_removed

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_Read = TypeVar("_Read")

_Part = tuple[RawName, pa.Table]
_NO_ROWS: Final = pa.Table.from_batches([], schema=parquet.CODED_SCHEMA)


class Retraction(msgspec.Struct, frozen=True):
    """Records to be taken back, because later events of their runs contradict them.

    Attributes:
        raw: the range whose entries take them back. Records from that range itself stay, and so do later
            ones.
        keys: the natural keys of the records.
        earlier: the nodes that the journal had before the range's node.
    """

    raw: RawName
    keys: frozenset[RecordKey]
    earlier: frozenset[str] = frozenset()

    def hours(self) -> set[Hour]:
        """The hours of the records."""
        return {hour_of(key[-1]) for key in self.keys}

    def of(self, hour: Hour) -> dict[str, frozenset[RecordKey]]:
        """The keys in one hour, by system."""
        found: dict[str, set[RecordKey]] = defaultdict(set)
        for key in self.keys:
            if hour_of(key[-1]) == hour:
                found[key[0]].add(key)
        return {system: frozenset(keys) for system, keys in found.items()}

    def takes_from(self, raw: RawName) -> bool:
        """Whether a raw file's records came before this range, from the same journal."""
        if raw.node == self.raw.node:
            return raw.last < self.raw.first
        return raw.node in self.earlier


# Files are opened for each read: an hour can have more files than may be open at once.


class _Raw(NamedTuple):
    """A raw file."""

    path: Path
    metadata: pq.FileMetaData
    rules: Rules


class _Known(NamedTuple):
    """The existing compacted file of a system in this hour."""

    metadata: pq.FileMetaData | None = None
    """The metadata of its compacted file; None if it has none."""
    covers: Covers = Covers()
    rules: Rules = Rules()
    seal: str | None = None


class _SystemCompaction:
    """The part of an hour that belongs to one system."""

    def __init__(
        self,
        known: _Known,
        raws: Collection[RawName],
        retraction: Retraction | None,
        keys: frozenset[RecordKey],
        encoder: parquet.Encoder,
    ) -> None:
        self.known = known
        self.raws = raws
        self.encoder = encoder
        self._retraction = retraction
        self._keys = keys

    def add(self, base: pa.Table, parts: Sequence[_Part]) -> None:
        """Merge the rows of one window from the compacted file and the raw files."""
        tables = [self._without_retracted(base)]
        for raw, table in parts:
            if raw in self.raws:
                takes = self._retraction is not None and self._retraction.takes_from(raw)
                tables.append(self._without_retracted(table) if takes else table)
        merged = merge_table(parquet.join(tables))
        if merged.num_rows:
            self.encoder.add(merged)

    def _without_retracted(self, table: pa.Table) -> pa.Table:
        return without(table, self._keys) if self._keys else table


class HourReport(msgspec.Struct, kw_only=True):
    """The result of compacting one hour; a `CompactionReport` has the same for several.

    Attributes:
        published: by path relative to the root, the seal of each published file.
        aside: the damaged files that were quarantined.
        unreadable: a sentence about the first file that cannot be read now.
        failed: why the hour could not be completed.
    """

    hour: Hour
    published: dict[str, str] = {}
    aside: list[Quarantined] = []
    unreadable: str | None = None
    failed: str | None = None


class _QuarantinedError(Exception):
    """A raw file was quarantined after part of it had been read."""


class HourCompaction:
    """The compaction of one hour, with the arguments of `compact_hour`, and its results so far.

    Attributes:
        report: what it has done so far.
    """

    def __init__(
        self, root: Path, hour: Hour, files: Files, nodes: Collection[str], window_rows: int
    ) -> None:
        self.report = HourReport(hour=hour)
        self._root = root
        self._hour = hour
        self._files = files
        self._nodes = nodes
        self._window_rows = window_rows
        self._folder = root / raw_folder(hour)
        self._raws: dict[RawName, _Raw] = {}
        self._paths: dict[str, PurePosixPath] = {}
        self._is_complete = True

    def run(self, retraction: Retraction | None) -> None:
        """Compact the hour; if a step raises `OSError`, running it again continues from there."""
        for node in self._nodes:
            sweep(self._files, self._folder, f"{node}-")
        paths = raw_files(self._root, self._hour)
        self._raws = {raw: one for raw, path in paths.items() if (one := self._open_raw(path)) is not None}
        while True:
            try:
                systems = self._systems(retraction)
                self._merge(systems)
                break
            except _QuarantinedError:
                continue
        for system, compaction in systems.items():
            self._publish(self._path_of(system), compaction)
        if self._is_complete:
            self._remove([one.path for one in self._raws.values()])

    def _systems(self, retraction: Retraction | None) -> dict[str, _SystemCompaction]:
        """The systems that get rows or lose some."""
        retracted = retraction.of(self._hour) if retraction else {}
        sources: dict[str, list[RawName]] = defaultdict(list)
        for raw in list(self._raws):
            for system in self._read(raw, parquet.systems_in):
                sources[system].append(raw)
        systems = {}
        names = sorted(sources.keys() | retracted.keys())
        for system in names:
            known = self._open_compacted(self._root / self._path_of(system))
            if known is None:
                self._is_complete = False
                continue
            fresh = {raw for raw in sources[system] if not known.covers.has(raw)}
            # A covered range has already been retracted, so its own records must not be taken back.
            applies = retraction is not None and not known.covers.has(retraction.raw)
            keys = retracted.get(system, frozenset()) if applies else frozenset()
            if fresh or (keys and known.metadata is not None):
                encoder = self._encoder(known, len(names))
                systems[system] = _SystemCompaction(known, fresh, retraction, keys, encoder)
        return systems

    def _encoder(self, known: _Known, systems: int) -> parquet.Encoder:
        metadata = [one.metadata for one in self._raws.values()]
        metadata += [] if known.metadata is None else [known.metadata]
        if sum(one.num_rows for one in metadata) <= self._window_rows:
            return parquet.Encoder(parquet.COMPACTED_FILTERS)
        rows = self._window_rows // systems
        return parquet.Encoder(parquet.COMPACTED_FILTERS, rows=rows, spool=self._root)

    def _merge(self, systems: dict[str, _SystemCompaction]) -> None:
        files = [
            *(one.metadata for one in self._raws.values()),
            *(one.known.metadata for one in systems.values() if one.known.metadata is not None),
        ]
        spans = [span for metadata in files for span in parquet.spans(metadata)]
        windows = in_windows(spans, self._window_rows, functools.partial(self._read_all, systems))
        for bases, parts in windows:
            while bases:
                system, base = bases.popitem()
                systems[system].add(base, parts.pop(system, []))

    def _read_all(
        self, systems: dict[str, _SystemCompaction], room: parquet.Room
    ) -> tuple[dict[str, pa.Table], dict[str, list[_Part]]]:
        """The rows of a window, by system, from its compacted file and from the raw files."""
        read = functools.partial(parquet.read_window, room=room)
        parts = _by_system({raw: self._read(raw, read) for raw in list(self._raws)})
        bases = {}
        for system, one in list(systems.items()):
            path, metadata = self._root / self._path_of(system), one.known.metadata
            try:
                bases[system] = _NO_ROWS if metadata is None else read(parquet.open_file(path, metadata))
            except parquet.DAMAGED as error:
                self._is_complete = False
                self._note_unreadable(parquet.unreadable(path, error, root=self._root))
                del systems[system]
        return bases, parts

    def _read(self, raw: RawName, how: Callable[[pq.ParquetFile], _Read]) -> _Read:
        one = self._raws[raw]
        try:
            return how(parquet.open_file(one.path, one.metadata))
        except parquet.DAMAGED as error:
            self._quarantine_if_damaged(one.path, error)
            del self._raws[raw]
            raise _QuarantinedError from None

    def _path_of(self, system: str) -> PurePosixPath:
        # Decided once: a file that replaces a quarantined one takes its place.
        if system not in self._paths:
            path = compacted_path(system, self._hour)
            if not (self._root / path).exists() and was_removed(self._root, safe_name(system), self._hour):
                path = late_path(system, self._hour)
            self._paths[system] = path
        return self._paths[system]

    def _publish(self, path: PurePosixPath, one: _SystemCompaction) -> None:
        covers = one.known.covers.adding(self._raws)
        rules = one.known.rules.uniting(self._raws[raw].rules for raw in one.raws)
        noted = covers.metadata() | rules.metadata()
        data, seal = finish_sealed(one.encoder, noted, one.known.seal)
        publish_alone(self._files, self._root / path, data)
        self.report.published[str(path)] = seal

    def _remove(self, raws: Sequence[Path]) -> None:
        for path in raws:
            self._files.remove(path)
        if raws:
            # The power must not bring them back once the compacted file, which covers them, has left.
            self._files.fsync_folder(self._folder)
            self._files.remove_folder(self._folder)
            self._files.remove_folder(self._folder.parent)

    def _open_raw(self, path: Path) -> _Raw | None:
        try:
            metadata = parquet.open_file(path).metadata
            return _Raw(path, metadata, Rules.read(metadata.metadata))
        except FileNotFoundError:
            return None
        except parquet.DAMAGED as error:
            self._quarantine_if_damaged(path, error)
            return None

    def _open_compacted(self, path: Path) -> _Known | None:
        """The content of a compacted file; empty if there is none; None if it cannot be read now."""
        try:
            file = parquet.open_file(path)
            metadata = file.metadata.metadata
            seal = parquet.seal_in(metadata)
            if seal is None:
                # Only reading all of it shows whether it is undamaged.
                _read_through(file)
            else:
                with path.open("rb") as stream:
                    parquet.check_seal(stream, seal)
            return _Known(file.metadata, Covers.read(metadata), Rules.read(metadata), seal)
        except FileNotFoundError:
            return _Known()
        except parquet.DAMAGED as error:
            return _Known() if self._quarantine_if_damaged(path, error) else None

    def _note_unreadable(self, sentence: str) -> None:
        self.report.unreadable = self.report.unreadable or sentence

    def _quarantine_if_damaged(self, path: Path, error: Exception) -> bool:
        """Quarantine an unreadable file if its bytes are the cause; return whether they are."""
        try:
            data = path.read_bytes()
        except OSError as failure:
            self._note_unreadable(parquet.unreadable(path, failure, root=self._root))
            return False
        seal = parquet.seal_of(data)
        is_sealed = seal is not None and is_intact(io.BytesIO(data), seal)
        if is_sealed or isinstance(error, MemoryError | parquet.FormatError):
            # There was no memory for it, or another version of Waybill wrote it.
            self._note_unreadable(parquet.unreadable(path, error, root=self._root))
            return False
        if seal is None and _is_readable(data):
            # Something else failed, such as a disk that works again by now.
            self._note_unreadable(parquet.unreachable(path, error))
            return False
        place = PurePosixPath(path.relative_to(self._root))
        reason = parquet.damage_of(error)
        self.report.aside.append(
            quarantine(self._root, place, self._hour, data, reason=reason, files=self._files)
        )
        return True


def _is_readable(data: bytes) -> bool:
    try:
        file = parquet.open_bytes(data)
        Covers.read(file.metadata.metadata)
        Rules.read(file.metadata.metadata)
        _read_through(file)
    except parquet.DAMAGED:
        return False
    return True


def _read_through(file: pq.ParquetFile) -> None:
    for _ in parquet.row_groups(file):
        pass


def _by_system(tables: Mapping[RawName, pa.Table]) -> dict[str, list[_Part]]:
    """Split raw tables by system; in a file by `RawWriter`, a system's rows are together."""
    parts: dict[str, list[_Part]] = defaultdict(list)
    for raw, table in tables.items():
        if not table.num_rows:
            continue
        table = table.unify_dictionaries().combine_chunks()  # noqa: PLW2901 - the same rows
        names = table["system_name"].combine_chunks()
        runs = pc.run_end_encode(names.indices)
        start = 0
        for end, code in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            parts[names.dictionary[code].as_py()].append((raw, table.slice(start, end - start)))
            start = end
    return parts
