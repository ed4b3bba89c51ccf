"""The compaction of raw files in an object store: each hour in a folder here, which is then exported.

Many hosts may have put their raw files there. An hour's rows are merged with what its compacted files over
there hold, by conditional puts, and the raw files that were read go when all of that has arrived. So several
may do it at once, and one that was cut short is done by doing it again.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter.compaction.compactor import CompactionReport, HourReport, compact_hour, summed
from waybill.exporter.exporting import (
    Destination,
    DestinationError,
    Exported,
    ReplacedError,
    export,
    open_destination,
)
from waybill.exporter.names import RAW, Hour, RawName, parse_hour, raw_folder
from waybill.exporter.object_stores import open_store, reason_of
from waybill.exporter.parallel import in_parallel
from waybill.exporter.sources import MARK, list_objects
from waybill.transport.files import Files

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from waybill.exporter.quarantine import Quarantined

_HOURS_AT_ONCE: Final = 4
_PARTS: Final = 3
"""Of a raw file's path below the folder of raw files."""


def compact_remote(url: str) -> CompactionReport:
    """Compact every hour that has raw files in an object store's folder.

    Args:
        url: the folder's, as `waybill.exporter.open_destination` takes it.

    Raises:
        DestinationError: it is of no known kind.
        SourceUnreachableError: it cannot be listed.
    """
    open_destination(url)
    hours = sorted(remote_raw_hours(url).items())
    return summed(in_parallel(lambda item: compact_remote_hour(url, *item), hours, workers=_HOURS_AT_ONCE))


def remote_raw_hours(url: str) -> Mapping[Hour, Sequence[str]]:
    """The raw files of an object store's folder, by hour, relative to the folder.

    Raises:
        SourceUnreachableError: it cannot be listed.
    """
    found: dict[Hour, list[str]] = defaultdict(list)
    for name in list_objects(f"{url}/{RAW}"):
        below = PurePosixPath(name.partition(MARK)[2])
        hour = parse_hour(*below.parts[:2]) if len(below.parts) == _PARTS else None
        if hour is not None and RawName.parse(below.name):
            found[hour].append(str(RAW / below))
    return found


def compact_remote_hour(url: str, hour: Hour, raws: Sequence[str]) -> HourReport:
    """Compact one hour.

    Args:
        url: the folder's.
        hour: which.
        raws: its raw files, relative to the folder.
    """
    from obstore.exceptions import BaseError

    store, destination = open_store(url)[1], open_destination(url)
    with tempfile.TemporaryDirectory(prefix="waybill-hour-") as folder:
        root = Path(folder)
        try:
            _fetch(store, root / raw_folder(hour), raws)
            report = compact_hour(root, hour, Files())
            report = as_sent(report, export(root, destination))
            for one in report.aside:
                _carry(destination, root, one)
            if report.failed is None and report.unreadable is None:
                # Somebody else may have done the same.
                with contextlib.suppress(FileNotFoundError):
                    store.delete(list(raws))
        except (BaseError, DestinationError, OSError) as error:
            what = f"hour {hour.day}/{hour.hour} cannot be compacted ({reason_of(error)}); do it again"
            return HourReport(hour=hour, changed={}, failed=what)
        # The report is about the store, wherever the work was done.
        aside = [
            msgspec.structs.replace(one, restore=one.restore.replace(folder, url)) for one in report.aside
        ]
        return msgspec.structs.replace(report, aside=aside)


def as_sent(report: HourReport, sent: Exported) -> HourReport:
    """What became of an hour that was compacted in a folder, told by what arrived of it."""
    failed = next((f"{path}: {why}" for path, why in sent.failed.items()), report.failed)
    there = {path: seal for path, seal in report.changed.items() if path not in sent.failed}
    return msgspec.structs.replace(report, changed=there, failed=failed)


def _fetch(store: ObjectStore, folder: Path, raws: Sequence[str]) -> None:
    Files().make_folder(folder)
    for raw in raws:
        try:
            data = store.get(raw).bytes()
        except FileNotFoundError:
            continue  # somebody else has compacted it
        (folder / PurePosixPath(raw).name).write_bytes(data)


def _carry(destination: Destination, root: Path, one: Quarantined) -> None:
    """Keep a damaged file, and the report on it, where it would be below a root."""
    kept = PurePosixPath(one.kept)
    for path in (kept.with_suffix(".json"), kept):
        with contextlib.suppress(ReplacedError):
            destination.write(str(path), (root / path).read_bytes(), None)
