"""The quarantine: damaged files, moved to where nothing reads them and never deleted, each with a report.

    provenance/damaged/<path below provenance>.<16 hex digits of its SHA-256>.damaged
    provenance/damaged/<path below provenance>.<16 hex digits of its SHA-256>.json

The report is written first, then the tombstone of a compacted file, and then the file is moved. A crash in
between leaves a report without a file, which is ignored, and the next compaction does all of it again.
Whoever has brought the rows back deletes the quarantined file; until then `verify` and `status` report it.
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
        kept: where it is now, relative to the root.
        hour: the hour of its rows.
        reason: why it cannot be read.
        at_ms: when it was quarantined, in epoch milliseconds.
        sha256: of its bytes, in hex digits.
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
        """What happened to the file, and what to do."""
        moment = datetime.fromtimestamp(self.at_ms // 1_000, UTC)
        return (
            f"{self.path} was damaged ({self.reason}) and set aside at {moment:%Y-%m-%dT%H:%M:%SZ}; bring "
            f"its rows back with `{self.restore}`, or from wherever its events are stored, then delete "
            f"{self.kept}"
        )


def quarantine(
    root: Path, path: PurePosixPath, hour: Hour, data: ReadableBuffer, *, reason: str, files: Files
) -> Quarantined:
    """Move a damaged file, given by its path relative to the root and its bytes, to the quarantine.

    The move is durable on return. Only whoever holds the root's lock may do it. Raises `OSError` if the file
    could not be moved.
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
        tombstone = Tombstone(sha256, 0, one.at_ms, one.kept)
        write_tombstones(files, root, system, hour.day, {hour.hour: tombstone})
    files.rename(source, target)
    # The new name must be durable before the old one is lost: a power cut must not leave the file nameless.
    files.fsync_folder(target.parent)
    files.fsync_folder(source.parent)
    log.warning("%s", one.sentence)
    return one


def list_quarantined(root: Path) -> Iterator[Quarantined]:
    """The reports on the quarantined files, in order of path; raises `OSError` if one cannot be read."""
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
