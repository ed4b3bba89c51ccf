"""Where the records of one journal entry are: in which file, and where that was exported to."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from waybill.exporter import parquet
from waybill.exporter.directory import FileStamp, raw_files
from waybill.exporter.exporting import ExportState, destinations
from waybill.exporter.names import Hour, RawName, compacted_path, late_path, safe_name
from waybill.exporter.parquet import Covers
from waybill.exporter.query.backlog import hours_of
from waybill.exporter.tombstones import tombstones

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.transport.journal import Entry


class Place(StrEnum):
    """What kind of file it is."""

    RAW = "raw"
    COMPACTED = "compacted"
    LATE = "late"
    REMOVED = "removed"
    DAMAGED = "damaged"


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """Where an entry's records of one system and hour are.

    Attributes:
        file: relative to the root.
        place: what kind of file it is; `REMOVED`: it was one that an age-off or an export has removed;
            `DAMAGED`: it may be one that was set aside since it was damaged.
        exported: the destinations that hold it as it is, or was when it was removed.
    """

    file: str
    place: Place
    exported: tuple[str, ...] = ()


def locate_entry(root: Path, node: str, entry: Entry) -> list[Located]:
    """Look for the records that an entry alone makes certain.

    Args:
        root: the layout's root.
        node: the name of the journal that the entry is in.
        entry: one that the layout has dealt with.

    Raises:
        OSError: a file or a note cannot be read.
    """
    one = RawName(node, entry.seq, entry.seq)
    wanted = sorted(hours_of(entry))
    return [found for system, hour in wanted for found in _placed(root, one, system, hour)]


def _placed(root: Path, one: RawName, system: str, hour: Hour) -> Iterator[Located]:
    # Raw files before the others: one that goes meanwhile is then in those.
    raws = [
        path
        for raw, path in raw_files(root, hour).items()
        if raw.node == one.node and raw.first <= one.first and one.last <= raw.last
    ]
    notes = list(destinations(root))
    for place, relative in (
        (Place.COMPACTED, compacted_path(system, hour)),
        (Place.LATE, late_path(system, hour)),
    ):
        path = root / relative
        try:
            mark = FileStamp.of(path.stat())
            covers = Covers.read(parquet.open_file(path).metadata.metadata)
        except parquet.DAMAGED:
            continue
        if covers.has(one):
            yield Located(
                file=str(relative),
                place=place,
                exported=tuple(
                    note.destination for note in notes if _mark(note, system, hour, str(relative)) == mark
                ),
            )
            return
    if raws:
        yield Located(file=str(raws[0].relative_to(root)), place=Place.RAW)
        return
    yield from _removed(root, notes, system, hour)


def _removed(root: Path, notes: list[ExportState], system: str, hour: Hour) -> Iterator[Located]:
    removed = tombstones(root, safe_name(system), hour.day).get(hour.hour)
    if removed is None:
        return
    if removed.kept is not None:
        if (root / removed.kept).exists():
            yield Located(file=removed.kept, place=Place.DAMAGED)
        return
    relative = str(compacted_path(system, hour))
    held = [(note, note.load(safe_name(system), hour.day).get(relative)) for note in notes]
    exported = tuple(note.destination for note, sent in held if sent and sent.source == removed.sha256)
    yield Located(file=relative, place=Place.REMOVED, exported=exported)


def _mark(note: ExportState, system: str, hour: Hour, relative: str) -> FileStamp | None:
    sent = note.load(safe_name(system), hour.day).get(relative)
    return None if sent is None else sent.mark
