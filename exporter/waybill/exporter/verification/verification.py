"""Checking that a root is right: every file is read, a part of one at a time in memory.

A root may be written meanwhile. A file that vanishes while it is checked was compacted or aged off, and is no
finding.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.exporter import parquet
from waybill.exporter.archive import EVENTS_SCHEMA, archived_files
from waybill.exporter.ledger import is_archived, is_of, read_ledger
from waybill.exporter.names import (
    COMPACTED,
    EVENTS,
    LATE,
    LEDGER,
    RAW,
    Hour,
    RawName,
    compacted_path,
    late_path,
    parse_hour,
    safe_name,
)
from waybill.exporter.parquet import Covers, before_in, is_intact, seal_in
from waybill.exporter.quarantine import list_quarantined
from waybill.exporter.verification.manifests import contradictions
from waybill.exporter.verification.soundness import Rows
from waybill.transport.files import is_temporary

_SUFFIX: Final = ".parquet"
_DEPTH: Final = len(RAW.parts)
_PARTS: Final = 3
"""Of a file's path below the folder of its kind."""


class Finding(msgspec.Struct, frozen=True):
    """Something about a root that is not as it should be.

    Attributes:
        path: the file, relative to the root.
        kind: ``unreadable``; ``stray``: its name is none of the layout's; ``empty``; ``system`` or ``hour``:
            rows that belong elsewhere; ``order``; ``repeats``; ``state``: an unknown final state; ``left``: a
            raw file of which everything is compacted; ``altered``: its bytes are not those that were sealed;
            ``unrecorded``, ``removed`` or ``ledger``: the ledger says otherwise, or is broken itself;
            ``chain``: a file of the archive does not name the one before it; ``manifest``: a destination's
            manifest says otherwise; ``damaged``: it was quarantined, and its rows may be missing.
        what: a sentence about it.
    """

    path: str
    kind: str
    what: str


class CheckedFile(msgspec.Struct, frozen=True):
    """A file that was checked.

    Attributes:
        path: relative to the root.
        rows: how many records it holds; 0 where it cannot be read, and for files of the archive.
        findings: what is wrong with it.
    """

    path: str
    rows: int = 0
    findings: tuple[Finding, ...] = ()

    @classmethod
    def with_finding(cls, path: str, kind: str, what: str) -> CheckedFile:
        """Return a file whose rows were not counted, with one finding."""
        return cls(path, 0, (Finding(path, kind, what),))


def check(root: Path) -> Iterator[CheckedFile]:
    """Check every file of a root, each when the iterator comes to it.

    A compacted or late file holds the system and the hour of its path, in order of (completed, did), no
    record twice, and is the file that the ledger has, where there is a ledger. A raw file holds the hour of
    its path, and something that is not compacted yet. A file of the archive holds entries of its name's range
    and its path's hour of arrival, in order, and names the file that its journal archived before.
    A destination's manifests list its compacted files as they are. No file is quarantined.

    Raises:
        OSError: a folder cannot be listed.
    """
    ledger = _LedgerView(root)
    yield from ledger.broken()
    judges = {RAW: _judge_raw, COMPACTED: _judge_compacted, LATE: _judge_compacted, EVENTS: _judge_archived}
    for kind, judge in judges.items():
        for path in _files(root / kind):
            relative = PurePosixPath(path.relative_to(root))
            try:
                rows, said = judge(ledger, relative)
            except FileNotFoundError:
                continue
            except parquet.DAMAGED as error:
                rows, said = 0, [("unreadable", parquet.unreadable(path, error))]
            findings = tuple(Finding(str(relative), *one) for one in said)
            yield CheckedFile(str(relative), rows, findings)
    yield from ledger.chained()
    yield from ledger.missing()
    for file, what in contradictions(root):
        yield CheckedFile.with_finding(file, "manifest", what)
    for one in list_quarantined(root):
        yield CheckedFile.with_finding(one.kept, "damaged", one.sentence)


_Said = list[tuple[str, str]]


class _LedgerView:
    """What the ledger of a root says, read again where the files are newer."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._state = read_ledger(root)
        self._links: dict[Path, tuple[str | None, str | None]] = {}

    def broken(self) -> Iterator[CheckedFile]:
        """What is wrong with the ledger itself."""
        for what in self._state.broken if self._state else ():
            yield CheckedFile.with_finding(str(LEDGER), "ledger", what)

    def missing(self) -> Iterator[CheckedFile]:
        """Files that the ledger has but the root has not."""
        before = self._state
        self._state = read_ledger(self.root)
        if before is None or self._state is None:
            return
        for path, (seal, _) in sorted(self._state.seals.items()):
            if seal is None or (self.root / path).exists() or self._changes(path):
                continue
            what = (
                f"{self.root / path} is gone, and no age-off took it; restore it from a copy, or rebuild it"
            )
            yield CheckedFile.with_finding(path, "removed", what)

    def judge(self, path: PurePosixPath, metadata: Mapping[bytes, bytes] | None) -> Iterator[tuple[str, str]]:
        """Whether the file with this footer is the one that the ledger has."""
        if self._agrees(path, metadata):
            return
        self._state = read_ledger(self.root)
        if self._agrees(path, metadata):
            return
        # If the file was replaced since it was opened, this footer is no longer its own.
        current = seal_in(pq.read_metadata(self.root / path).metadata)
        if current == seal_in(metadata):
            what = "the ledger does not know this file; restore it from a copy, or rebuild the hour"
            yield "unrecorded", what

    def note(self, path: PurePosixPath, metadata: Mapping[bytes, bytes] | None) -> None:
        """Remember which predecessor a file of the archive names, for `chained`."""
        self._links[self.root / path] = (seal_in(metadata), before_in(metadata))

    def chained(self) -> Iterator[CheckedFile]:
        """Files of the archive that do not name the one before them."""
        last: dict[str, Path] = {}
        aged = set(self._aged())
        for name, path in sorted(archived_files(self.root)):
            before = last.get(name.node)
            last[name.node] = path
            # An unreadable file has been reported already, and a newer one is for the next check.
            if path not in self._links or (before is not None and before not in self._links):
                continue
            named = self._links[path][1]
            if before is None and named in aged:
                continue  # An age-off removed the file before it.
            if named != (None if before is None else self._links[before][0]):
                what = f"the file before {path} is not the one that it names; restore that one from a copy"
                yield CheckedFile.with_finding(path.relative_to(self.root).as_posix(), "chain", what)

    def _aged(self) -> Iterator[str | None]:
        """The seals of archived files that an age-off removed, or is removing now."""
        for path, (seal, before) in self._state.seals.items() if self._state else ():
            if is_archived(path) and seal is None:
                yield before
            elif is_archived(path) and self._changes(path):
                yield seal

    def _agrees(self, path: PurePosixPath, metadata: Mapping[bytes, bytes] | None) -> bool:
        if self._state is None or self._changes(str(path)):
            return True
        known = self._state.seals.get(str(path))
        if path.is_relative_to(EVENTS):
            # Its predecessor is another file, not an earlier one in its place.
            return known is not None and known[0] == seal_in(metadata)
        return known == (seal_in(metadata), before_in(metadata))

    def _changes(self, path: str) -> bool:
        return any(is_of(path, hour) for hour in (self._state.changing if self._state else ()))


def _files(folder: Path) -> Iterator[Path]:
    """Every published file below a folder, in order, a folder at a time."""
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    for path in found:
        if path.is_dir():
            yield from _files(path)
        elif not is_temporary(path):
            yield path


def _judge_compacted(ledger: _LedgerView, path: PurePosixPath) -> tuple[int, _Said]:
    root = ledger.root
    parts = path.parts[_DEPTH:]
    hour = parse_hour(parts[1], parts[2].removesuffix(_SUFFIX)) if len(parts) == _PARTS else None
    if hour is None or not path.name.endswith(_SUFFIX):
        return 0, [("stray", _stray(root / path))]
    with (root / path).open("rb") as source:
        file = parquet.open_stream(source)
        metadata = file.metadata.metadata
        Covers.read(metadata)
        if not file.metadata.num_rows:
            return 0, [("empty", f"{root / path} holds no rows; remove it")]
        rows = Rows(file, hour)
        repeats = rows.repeats()
        seal = seal_in(metadata)
        is_altered = seal is not None and not is_intact(source, seal)
    said = [*rows.faults()]
    if is_altered:
        said.append(("altered", "its bytes are not those that were sealed; restore it from a copy"))
    else:
        said += ledger.judge(path, metadata)
    if foreign := [name for name in sorted(rows.systems) if safe_name(name) != parts[0]]:
        said.append(("system", f"it holds rows of {', '.join(map(repr, foreign[:3]))}; rebuild the hour"))
    elif len(rows.systems) > 1:
        said.append(("system", f"it holds rows of {len(rows.systems)} systems; rebuild the hour"))
    if not rows.is_sorted:
        said.append(("order", "its rows are not in order of completed and did; rebuild the hour"))
    if repeats:
        said.append(("repeats", f"{repeats} of its rows repeat records that it has; rebuild the hour"))
    return file.metadata.num_rows, said


def _judge_raw(ledger: _LedgerView, path: PurePosixPath) -> tuple[int, _Said]:
    root = ledger.root
    parts = path.parts[_DEPTH:]
    hour = parse_hour(parts[0], parts[1]) if len(parts) == _PARTS else None
    raw = RawName.parse(path.name)
    if hour is None or raw is None:
        return 0, [("stray", _stray(root / path))]
    file = parquet.open_file(root / path)
    rows = Rows(file, hour)
    said = [*rows.faults()]
    # A compaction at work may be about to remove it, so it counts only if it still exists afterwards.
    if all(_covers(root, system, hour, raw) for system in rows.systems) and (root / path).exists():
        said.append(("left", "all that it holds is compacted, so `waybill flush` removes it"))
    return file.metadata.num_rows, said


def _judge_archived(ledger: _LedgerView, path: PurePosixPath) -> tuple[int, _Said]:
    root, parts = ledger.root, path.parts
    hour = parse_hour(parts[1], parts[2]) if len(parts) == len(EVENTS.parts) + _PARTS else None
    name = RawName.parse(path.name)
    if hour is None or name is None:
        return 0, [("stray", _stray(root / path))]
    data = (root / path).read_bytes()
    file = pq.ParquetFile(pa.BufferReader(data))
    if file.schema_arrow != EVENTS_SCHEMA:
        raise pa.ArrowInvalid("its columns are not those of the archive")
    said: _Said = []
    metadata = file.metadata.metadata
    seal = seal_in(metadata)
    if seal is not None and not is_intact(io.BytesIO(data), seal):
        said.append(("altered", "its bytes are not those that were sealed; restore it from a copy"))
    else:
        said += ledger.judge(path, metadata)
    ledger.note(path, metadata)
    table = file.read(["sequence", "arrived"], use_threads=False)
    numbers, arrived = table["sequence"].combine_chunks(), table["arrived"].cast(pa.int64())
    inside = [name.first, *numbers.to_pylist(), name.last]
    if not table.num_rows or inside != sorted(inside) or len(set(inside[1:-1])) != table.num_rows:
        said.append(("order", "its entries are not those of its name, in order; restore it from a copy"))
    if pc.any(pc.or_(pc.less(arrived, hour.start_ms), pc.greater_equal(arrived, hour.end_ms))).as_py():
        said.append(("hour", "entries arrived in another hour; restore it from a copy"))
    return 0, said


def _covers(root: Path, system: str, hour: Hour, raw: RawName) -> bool:
    for path in (compacted_path(system, hour), late_path(system, hour)):
        # A missing file raises an `OSError`, which is one of `DAMAGED`.
        with contextlib.suppress(*parquet.DAMAGED):
            if Covers.read(parquet.open_file(root / path).metadata.metadata).has(raw):
                return True
    return False


def _stray(path: Path) -> str:
    return f"{path} is no file of the layout; move it away"
