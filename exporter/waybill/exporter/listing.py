"""What is there: the layout's files as the folders list them; one that vanishes meanwhile lists nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from waybill.exporter.layout import COMPACTED, RAW, Hour, RawName, parse_hour, raw_folder, safe_name


def raw_hours(root: Path) -> set[Hour]:
    """The hours that have a folder of raw files, be it empty."""
    return {
        hour
        for day in names(root / RAW)
        for name in names(root / RAW / day)
        if (hour := parse_hour(day, name))
    }


def raw_files(root: Path, hour: Hour) -> dict[RawName, Path]:
    """An hour's raw files, in order of node and range."""
    folder = root / raw_folder(hour)
    return {raw: folder / str(raw) for raw in sorted(filter(None, map(RawName.parse, names(folder))))}


def compacted_files(root: Path, system_name: str | None = None) -> dict[Hour, list[Path]]:
    """The compacted files of each hour, of one system or of all."""
    found: dict[Hour, list[Path]] = defaultdict(list)
    systems = names(root / COMPACTED) if system_name is None else [safe_name(system_name)]
    for system in systems:
        for day in names(root / COMPACTED / system):
            folder = root / COMPACTED / system / day
            for name in names(folder):
                stem, _, suffix = name.rpartition(".")
                if suffix == "parquet" and (hour := parse_hour(day, stem)):
                    found[hour].append(folder / name)
    return found


def names(folder: Path) -> Iterator[str]:
    """The names in a folder, in order."""
    try:
        return iter(sorted(path.name for path in folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return iter(())
