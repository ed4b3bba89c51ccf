"""A rebuild that goes to an object store: made in a folder here, then exported.

The folder is kept until everything has arrived, so that the same order goes on where it was cut short, be it
in the rebuild or in the export.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.exporting import Exported, export
from waybill.exporter.rebuilding.rebuilding import Progress, RebuildReport, rebuild
from waybill.transport.files import Files, publish
from waybill.transport.locks import locked

if TYPE_CHECKING:
    from waybill.exporter.exporting import Destination
    from waybill.exporter.rebuilding.wanted import Wanted
    from waybill.exporter.sources import Source

_DONE: Final = "rebuilt.json"
_LOCK: Final = ".lock"


def rebuild_remote(
    source: Source,
    destination: Destination,
    staging: Path,
    wanted: Wanted,
    *,
    workers: int = 1,
    on_progress: Progress | None = None,
) -> RebuildReport:
    """Rebuild a layout from stored entries into a destination, where its rows are merged with what is there.

    Args:
        source: what is read.
        destination: where the files go.
        staging: a folder where there is room for all of them; what is made in it goes when they have arrived.
        wanted: which records.
        workers: how many processes read and fold.
        on_progress: told of what is being done.

    Returns:
        What it came to; `failed` also has a sentence about each file that did not arrive: the same call goes
        on there.

    Raises:
        SourceError: the source is not there, or cannot be reached now.
        RebuildError: the same rebuild is under way in another process.
        OSError: the source cannot be read now, or the staging folder cannot be written.
    """
    files = Files()
    said = msgspec.json.encode([source.describe(), destination.name, *wanted.plain()])
    folder = staging / hashlib.sha256(said).hexdigest()[:16]
    over = folder.with_name(f"{folder.name}.over")
    shutil.rmtree(over, ignore_errors=True)
    files.make_folder(folder)
    with locked(folder / _LOCK):
        done = folder / _DONE
        if done.exists():
            report = _DECODER.decode(done.read_bytes())
        else:
            report = rebuild(source, folder, wanted, workers=workers, on_progress=on_progress)
            if report.failed:
                return msgspec.structs.replace(report, files=())
            publish(files, done, msgspec.json.encode(report))
        sent = export(
            folder,
            destination,
            on_progress=on_progress and (lambda seen, total: on_progress("exporting", seen, total)),
        )
        if not sent.failed:
            # At once: what is left of a folder that goes bit by bit is no rebuild to go on with.
            files.rename(folder, over)
            files.fsync_folder(staging)
            shutil.rmtree(over, ignore_errors=True)
    return _arrived(report, sent)


def _arrived(report: RebuildReport, sent: Exported) -> RebuildReport:
    failed = (*report.failed, *(f"{path}: {why}" for path, why in sent.failed.items()))
    there = tuple(path for path in report.files if path not in sent.failed)
    return msgspec.structs.replace(report, failed=failed, files=there)


_DECODER: Final = msgspec.json.Decoder(RebuildReport)
