"""Locating the records of one journal entry: the file, and the destinations that it was exported to."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import msgspec

from waybill.facets import AnnotationRule
from waybill.facets.arrow import from_table

from .. import parquet
from ..directory import FileStamp, raw_files
from ..exporting import ExportedFile, ExportState, destinations
from ..names import Hour, RawName, compacted_path, hour_of, late_path, safe_name
from ..parquet import Covers
from ..quarantine import list_quarantined
from ..stored_records import decode_entries
from ..tombstones import tombstones

if TYPE_CHECKING:
    from waybill.transport.journal import Entry


class Place(StrEnum):
    """The kind of a file."""

    RAW = "raw"
    COMPACTED = "compacted"
    LATE = "late"
    REMOVED = "removed"
    DAMAGED = "damaged"


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry's records of one system and hour are.

    Attributes:
        file: relative to the root.
        place: its kind. `REMOVED`: an age-off or an export has removed it; `DAMAGED`: the records may be in
            this quarantined file.
        exported: the destinations that hold the file as it is, or was when it was removed.
    """

    file: str
    place: Place
    exported: tuple[str, ...] = ()


def locate_entry(root: Path, node: str, entry: Entry) -> list[Located]:
    """Locate the records that an entry holds by itself; the layout must be past that entry.

    Raises:
        OSError: a file or a tombstone cannot be read.
    """
    one = RawName(node, entry.seq, entry.seq)
    return [found for system, hour in sorted(_hours_of(entry)) for found in _placed(root, one, system, hour)]


def _hours_of(entry: Entry) -> set[tuple[str, Hour]]:
    """The systems and hours of the records that an entry holds by itself."""
    found = decode_entries([entry], system_name="", rule=AnnotationRule())
    return {(record.system_name, hour_of(record.completed)) for record in from_table(found.records)}


def _placed(root: Path, one: RawName, system: str, hour: Hour) -> Iterator[Located]:
    # Raw files come first: one that a compaction takes meanwhile is then in the compacted file.
    raws = [
        path
        for raw, path in raw_files(root, hour).items()
        if raw.node == one.node and raw.first <= one.first and one.last <= raw.last
    ]
    states = list(destinations(root))
    paths = {Place.COMPACTED: compacted_path(system, hour), Place.LATE: late_path(system, hour)}
    for place, relative in paths.items():
        path = root / relative
        try:
            stamp = FileStamp.of(path.stat())
            covers = Covers.read(parquet.open_file(path).metadata.metadata)
        except FileNotFoundError:
            continue
        except parquet.DAMAGED as error:
            raise OSError(parquet.unreadable(path, error, root=root)) from None
        if covers.has(one):
            yield Located(
                file=str(relative),
                place=place,
                exported=tuple(
                    state.destination
                    for state in states
                    if (exported := _exported(state, system, hour, relative)) and exported.mark == stamp
                ),
            )
            return
    if raws:
        yield Located(file=str(raws[0].relative_to(root)), place=Place.RAW)
        return
    yield from _removed(root, states, system, hour)


def _removed(root: Path, states: list[ExportState], system: str, hour: Hour) -> Iterator[Located]:
    removed = tombstones(root, safe_name(system), hour.day).get(hour.hour)
    if removed is None:
        return
    if removed.kept is not None:
        if any(one.kept == removed.kept for one in list_quarantined(root)):
            yield Located(file=removed.kept, place=Place.DAMAGED)
        return
    relative = compacted_path(system, hour)
    held = [(state, _exported(state, system, hour, relative)) for state in states]
    exported = tuple(state.destination for state, one in held if one and one.source == removed.sha256)
    yield Located(file=str(relative), place=Place.REMOVED, exported=exported)


def _exported(state: ExportState, system: str, hour: Hour, path: PurePath) -> ExportedFile | None:
    return state.load(safe_name(system), hour.day).get(str(path))
