"""Verifying a root: every file is read, with only a part of one file in memory at a time.

The root may be written at the same time. A file that vanishes during the check was compacted or aged off, and
is no finding.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from waybill.transport.errors import WaybillError
from waybill.transport.files import Files
from waybill.transport.root import FOLDER_MARK

from .. import parquet
from ..archive import EVENTS_SCHEMA
from ..directory import files_below
from ..ledger import LedgerState, compare_again, finding_id, read_ledger, recorded, seal_there
from ..names import (
    COMPACTED,
    EVENTS,
    LATE,
    RAW,
    Hour,
    RawName,
    compacted_path,
    hour_in,
    late_path,
    raw_folder,
    relative,
    safe_name,
)
from ..parquet import Covers, Rules, before_in, is_intact, seal_in
from ..quarantine import list_quarantined, settle
from ..raw_notes import read_raw_notes
from ..remedies import FROM_A_COPY, accept_command, repair_command
from .continuity import Link, claims, gaps, lost_raws, unchained
from .manifests import contradictions
from .soundness import Rows

if TYPE_CHECKING:
    from waybill.transport.root import Claim


class NoLedgerError(WaybillError):
    """A root has no ledger in which anything could be accepted."""


def accept_findings(root: Path, findings: Collection[Finding], why: str = "") -> None:
    """Write into the ledger that findings are accepted.

    A file that the ledger did not have is in the ledger from then on. A new occurrence is a new finding.

    Raises:
        NoLedgerError: there is no ledger.
        OSError: an entry or a report cannot be written.
    """
    files = Files()
    if read_ledger(root) is None:
        raise NoLedgerError(
            f"{root} has no ledger that could record an accepted finding; fix the finding instead"
        )
    with recorded(root, files, ()) as changed:
        changed.accepted = {one.id: why for one in findings}
        for one in findings:
            # By now another file may be there.
            is_same = one.id == finding_id("unrecorded", one.path, hash_of(root / one.path))
            if is_same and (seal := seal_there(root / one.path)) is not None:
                changed[one.path] = seal
        settle(root, {one.path for one in findings if one.kind == "damaged"}, files)
    compare_again(root, files)


_SUFFIX: Final = ".parquet"
_STRAY: Final = ("stray", "it is not a file of the layout; move it away")


class Finding(msgspec.Struct, frozen=True):
    """Something that is wrong with a root.

    Attributes:
        path: the file, relative to the root.
        id: a short name for it, the same whenever the same is found; what happens anew has another one.
        kind: ``unreadable``; ``stray``: its name is none of the layout's; ``empty``; ``system`` or ``hour``:
            rows that belong elsewhere; ``order``; ``repeats``; ``state``: an unknown final state; ``left``: a
            raw file of which everything is compacted; ``altered``: its bytes are not those that were sealed;
            ``unrecorded``, ``removed`` or ``ledger``: the ledger says otherwise, or is broken itself;
            ``removed`` also: a raw file is gone that was not compacted; ``chain``: a file of the archive does
            not name the one before it; ``gap``: the archive lacks entries of a journal; ``manifest``: a
            destination's manifest says otherwise; ``damaged``: it was quarantined, and its rows may be
            missing.
        what: a sentence about it.
        was: where the rows of a quarantined file were, relative to the root; else as `path`.
        accepted: why somebody accepted it with `waybill verify --accept`; None while nobody has.
        restored: whether `waybill repair` has filed its rows again.
    """

    path: str
    kind: str
    what: str
    id: str
    was: str
    accepted: str | None = None
    restored: bool = False


class CheckedFile(msgspec.Struct, frozen=True):
    """A file that was checked.

    Attributes:
        path: relative to the root.
        rows: how many records it holds; 0 where it cannot be read, and for files of the archive.
        findings: the problems found in it.
    """

    path: str
    rows: int = 0
    findings: tuple[Finding, ...] = ()


def check(root: Path | str, *, is_copy: bool = False) -> Iterator[CheckedFile]:
    """Check every file of a root, each when the iterator comes to it.

    A compacted or late file holds the system and the hour of its path, in order of (completed, did), no
    record twice, and is the file that the ledger has, where there is a ledger. A raw file holds the hour of
    its path, and something that is not compacted yet. A file of the archive holds entries of its name's range
    and its path's hour of arrival, in order, and names the file that its journal archived before.
    The files of each journal follow each other without a gap. No raw file is gone that was not compacted. A
    destination's manifests list its compacted files as they are. No file is quarantined, or was replaced by
    anything else than its successor.

    Args:
        root: the root.
        is_copy: whether it is a copy of one elsewhere, so that no command works on it.

    Raises:
        OSError: a folder cannot be listed.
    """
    root = Path(root)
    view = _LedgerView(root, is_copy=is_copy)
    claimed = claims(root)
    lost = lost_raws(root, read_raw_notes(root), ())
    judges = {RAW: _judge_raw, COMPACTED: _judge_compacted, LATE: _judge_compacted, EVENTS: _judge_archived}
    for kind, judge in judges.items():
        for path in files_below(root / kind):
            if path == root / kind / FOLDER_MARK:
                continue
            place = relative(root, path)
            hour = hour_in(place) if path.suffix == _SUFFIX else None
            try:
                rows, said = (0, [_STRAY]) if hour is None else judge(view, PurePosixPath(place), hour)
            except FileNotFoundError:
                continue
            except parquet.DAMAGED as error:
                rows, said = 0, [("unreadable", view.unreadable(error))]
            evidence = hash_of(path) if said else ""
            found = tuple(view.finding(place, kind, what, evidence) for kind, what in said)
            yield CheckedFile(place, rows, found)
    view.read_again()
    for one in (
        *view.unrecorded(),
        *view.chained(),
        *view.gaps(claimed),
        *view.missing(),
        *view.left(),
        *view.lost(lost),
        *view.doubts(),
    ):
        yield CheckedFile(one.path, 0, (one,))
    for file, what in contradictions(root):
        yield CheckedFile(file, 0, (view.finding(file, "manifest", what, hash_of(root / file)),))


_Said = list[tuple[str, str]]


class _LedgerView:
    """A root's ledger, read when the check begins and once more when all files are read."""

    def __init__(self, root: Path, *, is_copy: bool) -> None:
        self.root = root
        self._is_copy = is_copy
        self.way_out = FROM_A_COPY if is_copy else f"run `{repair_command(root)}`, or {FROM_A_COPY}"
        self._state = read_ledger(root) or LedgerState()
        self._has_ledger = bool(self._state.entries)
        self._links: dict[Path, Link] = {}
        self._suspects: dict[PurePosixPath, str | None] = {}
        self._covered: list[str] = []

    def read_again(self) -> None:
        """Read the ledger again, with the entries recorded since the check began."""
        self._state = read_ledger(self.root) or LedgerState()

    def finding(self, path: str, kind: str, what: str, evidence: str, was: str | None = None) -> Finding:
        """A finding, with its state in the ledger: accepted, restored or neither."""
        found = finding_id(kind, path, evidence)
        accepted = self._state.accepted.get(found)
        is_restored = found in self._state.restored
        if accepted is not None or is_restored:
            # The fix has been made.
            what = what.partition("; ")[0]
        if is_restored:
            what += "; its rows have been filed again"
            if accepted is None and not self._is_copy:
                what += f": settle it with `{accept_command(self.root, found)}`"
        return Finding(
            path,
            kind,
            what,
            found,
            path if was is None else was,
            accepted,
            is_restored,
        )

    def unreadable(self, error: Exception) -> str:
        """The problem of a file that cannot be read; the finding has its path."""
        return parquet.unreadable("it", error, root=None if self._is_copy else self.root)

    def judge(self, path: PurePosixPath, metadata: Mapping[bytes, bytes] | None) -> None:
        """Compare the footer of a file with the ledger; see `unrecorded`."""
        if not self._agrees(path, metadata):
            self._suspects[path] = seal_in(metadata)

    def unrecorded(self) -> Iterator[Finding]:
        """Files that were judged not to be those of the ledger, and still are not."""
        for path, seal in self._suspects.items():
            # If the file was replaced since it was opened, that footer is no longer its own.
            with contextlib.suppress(*parquet.DAMAGED):
                metadata = pq.read_metadata(self.root / path).metadata
                if seal_in(metadata) == seal and not self._agrees(path, metadata):
                    what = f"the ledger does not know this file; {self.way_out}"
                    yield self.finding(str(path), "unrecorded", what, hash_of(self.root / path))

    def doubts(self) -> Iterator[Finding]:
        """The files that the ledger itself doubts, and the quarantined files that it does not know."""
        reports = {one.kept: one for one in list_quarantined(self.root, also_accepted=True)}
        for one in self._state.doubts.values():
            report = reports.pop(one.path, None)
            if self._is_gone(one.path) and one.evidence == self._state.seal(one.path):
                continue  # `missing` has it.
            what = f"{one.what}; {self.way_out}" if report is None else report.sentence
            yield self.finding(one.path, one.kind, what, one.evidence, one.was)
        for kept, report in reports.items():
            yield self.finding(kept, "damaged", report.sentence, report.sha256, report.path)

    def note_left(self, path: PurePosixPath) -> None:
        """Remember a raw file whose rows are all compacted, for `left`."""
        self._covered.append(str(path))

    def left(self) -> Iterator[Finding]:
        """Raw files whose rows are all compacted and that no compaction is about to remove."""
        for path in self._covered:
            if not self._changes(path) and (self.root / path).exists():
                what = "all of its rows are compacted; run `waybill flush`, which removes it"
                yield self.finding(path, "left", what, hash_of(self.root / path))

    def missing(self) -> Iterator[Finding]:
        """Files that are in the ledger but not in the root."""
        for path, (seal, _) in sorted(self._state.seals.items()):
            if seal is not None and self._is_gone(path):
                what = f"it is gone, and no age-off removed it; {self.way_out}"
                yield self.finding(path, "removed", what, seal)

    def lost(self, before: Mapping[Hour, Covers]) -> Iterator[Finding]:
        """Raw files that were gone before they were compacted, when the check began and still."""
        # Removing a compacted file also hides which raw files it covered.
        gone = {hour_in(path) for path, (seal, _) in self._state.seals.items() if seal is None}
        aside = {one.hour for one in list_quarantined(self.root, also_accepted=True)}
        settled = {*filter(None, gone), *aside, *self._state.changing}
        noted = {hour: one for hour, one in read_raw_notes(self.root).items() if hour in before}
        for hour, now in lost_raws(self.root, noted, settled).items():
            # A range that was not gone then may be moving from one file to another.
            lost = now.minus(now.minus(before[hour]))
            for node, spans in lost.ranges.items():
                for first, last in spans:
                    path = str(raw_folder(hour) / str(RawName(node, first, last)))
                    what = "it is gone, or several files for its range are, and it was not compacted"
                    yield self.finding(path, "removed", f"{what}; {self.way_out}", "")

    def note(self, path: PurePosixPath, metadata: Mapping[bytes, bytes] | None) -> None:
        """Remember which predecessor a file of the archive names, for `chained`."""
        self._links[self.root / path] = Link(seal_in(metadata), before_in(metadata))

    def chained(self) -> Iterator[Finding]:
        """Files of the archive that do not name the one before them."""
        for path in unchained(self.root, self._links, self._state):
            what = "the previous file is not the one that it names; restore the named file from a copy"
            yield self.finding(relative(self.root, path), "chain", what, self._links[path].before or "")

    def gaps(self, claimed: Mapping[str, Claim]) -> Iterator[Finding]:
        """Ranges of a journal's entries that the archive lacks, and that no finding about a file covers."""
        reports = list_quarantined(self.root, also_accepted=True)
        for raw in gaps(self.root, self._state, claimed, [one.path for one in reports]):
            path = str(EVENTS / str(raw))
            entries = f"entry {raw.first}" if raw.first == raw.last else f"entries {raw.first} to {raw.last}"
            what = f"the archive lacks {entries} of journal {raw.node}; run `waybill repair` at its home"
            yield self.finding(path, "gap", what, "")

    def _is_gone(self, path: str) -> bool:
        return (
            self._state.seal(path) is not None and not (self.root / path).exists() and not self._changes(path)
        )

    def _agrees(self, path: PurePosixPath, metadata: Mapping[bytes, bytes] | None) -> bool:
        if not self._has_ledger or self._changes(str(path)):
            return True
        known = self._state.seals.get(str(path))
        if path.is_relative_to(EVENTS):
            # Its predecessor is another file, not an earlier one in its place.
            return known is not None and known[0] == seal_in(metadata)
        return known == (seal_in(metadata), before_in(metadata))

    def _changes(self, path: str) -> bool:
        return hour_in(path) in self._state.changing


def hash_of(path: Path) -> str:
    """The SHA-256 of a file's content; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _judge_compacted(view: _LedgerView, path: PurePosixPath, hour: Hour) -> tuple[int, _Said]:
    with (view.root / path).open("rb") as source:
        file = parquet.open_stream(source)
        metadata = file.metadata.metadata
        Covers.read(metadata)
        Rules.read(metadata)
        seal = seal_in(metadata)
        if not file.metadata.num_rows and seal is None:
            # Of a sealed file, all records were taken back.
            return 0, [("empty", "it holds no rows; remove it")]
        rows = Rows(file, hour)
        repeats = rows.repeats()
        is_altered = seal is not None and not is_intact(source, seal)
    said = [*rows.faults()]
    if is_altered:
        said.append(("altered", f"its bytes are not those that were sealed; {view.way_out}"))
    else:
        view.judge(path, metadata)
    if foreign := [name for name in sorted(rows.systems) if safe_name(name) != path.parent.parent.name]:
        said.append(("system", f"it holds rows of {', '.join(map(repr, foreign[:3]))}; rebuild the hour"))
    elif len(rows.systems) > 1:
        said.append(("system", f"it holds rows of {len(rows.systems)} systems; rebuild the hour"))
    if not rows.is_sorted:
        said.append(("order", "its rows are not in order of completed and did; rebuild the hour"))
    if repeats:
        said.append(("repeats", f"{repeats} of its rows repeat records that it has; rebuild the hour"))
    return file.metadata.num_rows, said


def _judge_raw(view: _LedgerView, path: PurePosixPath, hour: Hour) -> tuple[int, _Said]:
    raw = RawName.parse(path.name)
    if raw is None:
        return 0, [_STRAY]
    file = parquet.open_file(view.root / path)
    rows = Rows(file, hour)
    if all(_covers(view.root, system, hour, raw) for system in rows.systems):
        view.note_left(path)
    return file.metadata.num_rows, [*rows.faults()]


def _judge_archived(view: _LedgerView, path: PurePosixPath, hour: Hour) -> tuple[int, _Said]:
    name = RawName.parse(path.name)
    if name is None:
        return 0, [_STRAY]
    data = (view.root / path).read_bytes()
    file = pq.ParquetFile(pa.BufferReader(data))
    if file.schema_arrow != EVENTS_SCHEMA:
        raise parquet.ForeignError("its columns are not those of the archive")
    said: _Said = []
    metadata = file.metadata.metadata
    parquet.check_format(metadata)
    seal = seal_in(metadata)
    if seal is not None and not is_intact(io.BytesIO(data), seal):
        said.append(("altered", f"its bytes are not those that were sealed; {view.way_out}"))
    else:
        view.judge(path, metadata)
    view.note(path, metadata)
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
