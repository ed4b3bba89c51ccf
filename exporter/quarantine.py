"""The quarantine: damaged files are moved where nothing reads them, and are never deleted. Each has a report.

    provenance/damaged/<path below provenance>.<16 hex digits of its SHA-256>.damaged
    provenance/damaged/<path below provenance>.<16 hex digits of its SHA-256>.json

The report is written first, then the tombstone of a compacted file, and then the file is moved. A crash in
between leaves a report without a file. It is ignored, and the next compaction repeats everything. `verify`
and `status` report a quarantined file until somebody settles it with `waybill verify --accept`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.files import Files, publish, sweep

from .directory import files_below
from .names import COMPACTED, DAMAGED, EVENTS, Hour
from .remedies import repair_command
from .tombstones import Tombstone, write_tombstones

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

log = logging.getLogger("waybill.exporter")

_SUFFIX: Final = ".damaged"
_REPORT: Final = ".json"
_DIGITS: Final = 16


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged file that was moved out of the layout.

    Attributes:
        path: the file's old path, relative to the root.
        kept: the file's new path, relative to the root.
        hour: the hour of its rows.
        reason: why it cannot be read.
        at_ms: when the file was quarantined, in epoch milliseconds.
        sha256: the hash of its bytes, in hex digits.
        restore: the command that restores its rows.
        restored_ms: when a repair restored its rows, in epoch milliseconds; None if not restored.
        accepted_ms: when somebody settled it, in epoch milliseconds; None if not settled.
    """

    path: str
    kept: str
    hour: Hour
    reason: str
    at_ms: int
    sha256: str
    size_bytes: int
    restore: str
    restored_ms: int | None = None
    accepted_ms: int | None = None

    @property
    def sentence(self) -> str:
        """A sentence about what happened to the file and what to do."""
        moment = datetime.fromtimestamp(self.at_ms // 1_000, UTC)
        return (
            f"{self.path} was quarantined at {moment:%Y-%m-%dT%H:%M:%SZ} ({self.reason}); restore its rows "
            f"with `{self.restore}`, or from another place that has its events"
        )


def quarantine(
    root: Path, path: PurePosixPath, hour: Hour, data: ReadableBuffer, *, reason: str, files: Files
) -> Quarantined:
    """Move a file to the quarantine, given its path relative to the root and its bytes.

    The move is durable on return. The caller must hold the root's lock. Raises `OSError` if the file could
    not be moved.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    kept = DAMAGED / (path if path.is_relative_to(EVENTS) else path.relative_to(DAMAGED.parent))
    kept = kept.with_name(f"{path.name}.{sha256[:_DIGITS]}{_SUFFIX}")
    one = Quarantined(
        path=str(path),
        kept=str(kept),
        hour=hour,
        reason=" ".join(reason.split()),
        at_ms=SYSTEM_CLOCK.now_ms(),
        sha256=sha256,
        size_bytes=memoryview(data).nbytes,
        restore=repair_command(root),
    )
    source, target = root / path, root / kept
    files.make_folder(target.parent)
    sweep(files, target.parent)
    publish(files, target.with_suffix(_REPORT), _encoded(one))
    if path.is_relative_to(COMPACTED):
        system = path.parts[len(COMPACTED.parts)]
        tombstone = Tombstone(sha256, 0, one.at_ms, one.kept)
        write_tombstones(files, root, system, hour.day, {hour.hour: tombstone})
    files.rename(source, target)
    # The new name must be durable before the old one is removed: a power cut must not leave the file without
    # a name.
    files.fsync_folder(target.parent)
    files.fsync_folder(source.parent)
    log.warning("%s", one.sentence)
    return one


def list_quarantined(root: Path, *, also_accepted: bool = False) -> Iterator[Quarantined]:
    """The reports on quarantined files that nobody has settled, or on all, in order of path.

    Raises `OSError` if one cannot be read.
    """
    for path in files_below(root / DAMAGED):
        if path.suffix != _SUFFIX:
            continue
        report = path.with_suffix(_REPORT)
        try:
            one = _DECODER.decode(report.read_bytes())
        except msgspec.DecodeError as error:
            raise OSError(
                f"{report} is not a valid report ({error}); restore the rows of {path}, then delete both"
            ) from None
        if also_accepted or one.accepted_ms is None:
            yield one


def settle(root: Path, kept: Collection[str], files: Files) -> None:
    """Note in the reports of quarantined files that they are settled; raises `OSError` if that fails."""
    _note(root, kept, files, accepted_ms=SYSTEM_CLOCK.now_ms())


def note_restored(root: Path, kept: Collection[str], files: Files) -> None:
    """Note in the reports of quarantined files that their rows were restored; see `settle`."""
    _note(root, kept, files, restored_ms=SYSTEM_CLOCK.now_ms())


def _note(root: Path, kept: Collection[str], files: Files, **noted_ms: int) -> None:
    for one in list(list_quarantined(root)):
        if one.kept in kept:
            noted = msgspec.structs.replace(one, **noted_ms)
            publish(files, (root / one.kept).with_suffix(_REPORT), _encoded(noted))


def _encoded(one: Quarantined) -> bytes:
    return msgspec.json.format(msgspec.json.encode(one), indent=1)


_DECODER: Final = msgspec.json.Decoder(Quarantined)
