"""Damaged files, set aside: out of everybody's way, never deleted, each with a report beside it.

    provenance/damaged/<path below provenance>.<16 hex digits of its SHA-256>.damaged
    provenance/damaged/<path below provenance>.<16 hex digits of its SHA-256>.json

The report comes first, then the note that an export heeds, then the file is moved: a crash in between leaves
a report without a file, which counts for nothing, and the next compaction does it all again. Whoever has
brought the rows back deletes the file there; until then `verify` and `status` tell of it.
"""

from __future__ import annotations

import hashlib
import logging
import shlex
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.names import COMPACTED, DAMAGED, EVENTS, Hour
from waybill.exporter.tombstones import Tombstone, write_tombstones
from waybill.transport.files import Files, publish, sweep

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

log = logging.getLogger("waybill.exporter")

_SUFFIX: Final = ".damaged"
_REPORT: Final = ".json"
_DIGITS: Final = 16


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged file that was moved out of the layout.

    Attributes:
        path: where it was, relative to the root.
        kept: where it is, relative to the root.
        hour: the hour that its rows are of.
        reason: why it cannot be read.
        at_ms: when it was set aside, in epoch milliseconds.
        sha256: of its bytes, in hex digits.
        size_bytes: how many bytes.
        restore: the command that brings its rows back.
    """

    path: str
    kept: str
    hour: Hour
    reason: str
    at_ms: int
    sha256: str
    size_bytes: int
    restore: str

    @property
    def sentence(self) -> str:
        """What became of it, and the way out."""
        moment = datetime.fromtimestamp(self.at_ms // 1_000, UTC)
        return (
            f"{self.path} was damaged ({self.reason}) and set aside at {moment:%Y-%m-%dT%H:%M:%SZ}; bring "
            f"its rows back with `{self.restore}`, or from wherever its events are stored, then delete "
            f"{self.kept}"
        )


def quarantine(
    root: Path, path: PurePosixPath, hour: Hour, data: ReadableBuffer, *, reason: str, files: Files
) -> Quarantined:
    """Move a damaged file to where nothing reads it; durable on return. Only whoever has the turn may.

    Args:
        root: the layout's root.
        path: the file, relative to the root.
        hour: the hour that its rows are of.
        data: its bytes.
        reason: why it cannot be read.
        files: the file system.

    Raises:
        OSError: it is where it was.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    kept = DAMAGED / path.relative_to(DAMAGED.parent)
    kept = kept.with_name(f"{path.name}.{sha256[:_DIGITS]}{_SUFFIX}")
    one = Quarantined(
        path=str(path),
        kept=str(kept),
        hour=hour,
        reason=" ".join(reason.split()),
        at_ms=time.time_ns() // 1_000_000,
        sha256=sha256,
        size_bytes=memoryview(data).nbytes,
        restore=_restoring(root, hour),
    )
    source, target = root / path, root / kept
    files.make_folder(target.parent)
    sweep(files, target.parent)
    publish(files, target.with_suffix(_REPORT), msgspec.json.format(msgspec.json.encode(one), indent=1))
    if path.is_relative_to(COMPACTED):
        system = path.parts[len(COMPACTED.parts)]
        write_tombstones(
            files, root, system, hour.day, {hour.hour: Tombstone(sha256, 0, one.at_ms, one.kept)}
        )
    files.rename(source, target)
    # First the new name, then the loss of the old one: no power cut may leave neither.
    files.fsync_folder(target.parent)
    files.fsync_folder(source.parent)
    log.warning("%s", one.sentence)
    return one


def list_quarantined(root: Path) -> Iterator[Quarantined]:
    """The reports on the files that are set aside, in order of where they were.

    Raises:
        OSError: a report cannot be read.
    """
    for path in sorted((root / DAMAGED).rglob(f"*{_SUFFIX}")):
        try:
            yield _DECODER.decode(path.with_suffix(_REPORT).read_bytes())
        except msgspec.DecodeError as error:
            report = path.with_suffix(_REPORT)
            raise OSError(
                f"{report} is no report ({error}); bring back what {path} held, then delete both"
            ) from None


def _restoring(root: Path, hour: Hour) -> str:
    moments = [
        f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for at_ms in (hour.start_ms, hour.end_ms)
    ]
    stored = ["events", str(root)] if (root / EVENTS).is_dir() else ["journal"]
    command = ["waybill", "rebuild", "--from", *stored, "--to", str(root)]
    return shlex.join([*command, "--since", moments[0], "--until", moments[1]])


_DECODER: Final = msgspec.json.Decoder(Quarantined)
