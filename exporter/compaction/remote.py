"""Compacting raw files in an object store: each hour is compacted in a local folder, then exported.

Many hosts may upload raw files. An hour's rows are merged with its compacted files in the store by
conditional puts, and the raw files are deleted once everything has arrived. So several processes may compact
at once, and an interrupted compaction can simply be run again.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.files import Files

from ..exporting import (
    Destination,
    DestinationError,
    Exported,
    ReplacedError,
    export,
    open_blob_store,
    open_destination,
)
from ..names import RAW, Hour, RawName, hour_in, raw_folder
from ..parallel import in_parallel
from ..sources import MARK, list_objects
from .compactor import CompactionReport, compact_hour, summed
from .restartable_hour import HourReport

if TYPE_CHECKING:
    from ..quarantine import Quarantined

_HOURS_AT_ONCE: Final = 4


def compact_remote(url: str) -> CompactionReport:
    """Compact every hour that has raw files in a folder of an object store.

    Raises:
        DestinationError: the kind of URL is unknown.
        SourceUnreachableError: the folder cannot be listed.
    """
    open_destination(url)
    hours = sorted(remote_raw_hours(url).items())
    return summed(in_parallel(lambda item: compact_remote_hour(url, *item), hours, workers=_HOURS_AT_ONCE))


def remote_raw_hours(url: str) -> Mapping[Hour, Sequence[str]]:
    """The raw files in an object store's folder, by hour, relative to it; raises as `list_objects` does."""
    found: dict[Hour, list[str]] = defaultdict(list)
    for name in list_objects(f"{url}/{RAW}"):
        path = f"{RAW}/{name.partition(MARK)[2]}"
        if (hour := hour_in(path)) is not None and RawName.parse(PurePosixPath(path).name):
            found[hour].append(path)
    return found


def compact_remote_hour(url: str, hour: Hour, raws: Sequence[str]) -> HourReport:
    """Compact one hour, given its raw files by their paths in the folder."""
    store = open_blob_store(url, Files())
    with tempfile.TemporaryDirectory(prefix="waybill-hour-") as folder:
        root = Path(folder)
        try:
            Files().make_folder(root / raw_folder(hour))
            for raw in raws:
                # A missing file was compacted by another process.
                if found := store.read(raw):
                    (root / raw_folder(hour) / PurePosixPath(raw).name).write_bytes(found[0])
            report = compact_hour(root, hour, Files())
            report = as_exported(report, export(root, store))
            for one in report.aside:
                _carry(store, root, one)
            if report.failed is None and report.unreadable is None:
                store.delete(raws)
        except (DestinationError, OSError) as error:
            what = f"hour {hour.day}/{hour.hour} cannot be compacted ({error}); try again"
            return HourReport(hour=hour, failed=what)
        # The report names places in the store, wherever the work was done.
        aside = [msgspec.structs.replace(one, restore=_rebuilding(url, hour)) for one in report.aside]
        return msgspec.structs.replace(report, aside=aside)


def _rebuilding(url: str, hour: Hour) -> str:
    since, until = (
        f"{datetime.fromtimestamp(at_ms // 1_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        for at_ms in (hour.start_ms, hour.end_ms)
    )
    command = ["waybill", "rebuild", "--from", "journal", "--to", url, "--since", since, "--until", until]
    return shlex.join(command)


def as_exported(report: HourReport, exported: Exported) -> HourReport:
    """The result of an hour that was compacted in a folder and exported from it."""
    failed = next((f"{path}: {why}" for path, why in exported.failed.items()), report.failed)
    arrived = {path: seal for path, seal in report.published.items() if path not in exported.failed}
    return msgspec.structs.replace(report, published=arrived, failed=failed)


def _carry(destination: Destination, root: Path, one: Quarantined) -> None:
    """Quarantine a damaged file in the object store, with its report."""
    quarantined = PurePosixPath(one.kept)
    for path in (quarantined.with_suffix(".json"), quarantined):
        with contextlib.suppress(ReplacedError):
            destination.write(str(path), (root / path).read_bytes(), None)
