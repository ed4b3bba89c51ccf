"""The layout's names: where a record goes, and what a path says about the file behind it.

    provenance/raw/YYYYMMDD/HH/<node>-<first>-<last>.parquet
    provenance/compacted/<safe system name>/YYYYMMDD/HH.parquet
    provenance/late/<safe system name>/YYYYMMDD/HH.parquet
    provenance/aged/<safe system name>/YYYYMMDD.json
    provenance/damaged/<path below provenance>.<16 hex digits>.damaged
    provenance/filed/YYYYMMDD/HH/<node>.json
    provenance/ledger/YYYYMMDD/…
    provenance/seals/YYYYMMDD/HH.json
    provenance/exports/<destination>/<safe system name>/YYYYMMDD.json
    events/YYYYMMDD/HH/<node>-<first>-<last>.parquet

Nothing here touches a disk. Each name has one formatter and one parser, so that no other module knows its
form.
"""

from __future__ import annotations

import functools
import hashlib
import re
from datetime import UTC, datetime
from pathlib import PurePath, PurePosixPath
from typing import Final, NamedTuple

HOUR_MS: Final = 3_600_000

# Folders, relative to the root.
PROVENANCE: Final = "provenance"
RAW: Final = PurePosixPath("provenance/raw")
COMPACTED: Final = PurePosixPath("provenance/compacted")
LATE: Final = PurePosixPath("provenance/late")  # records that came after their hour was aged off
AGED: Final = PurePosixPath("provenance/aged")
DAMAGED: Final = PurePosixPath("provenance/damaged")
FILED: Final = PurePosixPath("provenance/filed")
LEDGER: Final = PurePosixPath("provenance/ledger")
SEALS: Final = PurePosixPath("provenance/seals")
EXPORTS: Final = PurePosixPath("provenance/exports")
EVENTS: Final = PurePosixPath("events")

_NAME_BYTES_MAX: Final = 200
_DIGEST_DIGITS: Final = 16
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_DAY: Final = re.compile(r"[0-9]{8}")
_HOUR: Final = re.compile(r"[0-9]{2}")
_RAW_NAME: Final = re.compile(r"([A-Za-z0-9]+)-([1-9][0-9]*)-([1-9][0-9]*)\.parquet")


class Hour(NamedTuple):
    """One UTC hour, as the layout writes it; hours compare in order of time."""

    day: str
    """``YYYYMMDD``."""
    hour: str
    """``HH``."""

    @property
    def start_ms(self) -> int:
        """Its first instant, in epoch milliseconds."""
        start = datetime.strptime(f"{self.day}{self.hour}+0000", "%Y%m%d%H%z")
        return int(start.timestamp()) * 1_000

    @property
    def end_ms(self) -> int:
        """The first instant after it, in epoch milliseconds."""
        return self.start_ms + HOUR_MS


class RawName(NamedTuple):
    """The name of a raw or archived file: the journal that it is of, and the range of entries it holds."""

    node: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.node}-{self.first}-{self.last}.parquet"

    @classmethod
    def parse(cls, name: str) -> RawName | None:
        """Read a file name; None when it is not such a name."""
        found = _RAW_NAME.fullmatch(name)
        if found is None:
            return None
        raw = cls(found[1], int(found[2]), int(found[3]))
        return raw if raw.first <= raw.last else None


def hour_of(completed_ms: int) -> Hour:
    """The hour that a record belongs to, by its `completed` in epoch milliseconds."""
    moment = datetime.fromtimestamp(completed_ms // 1_000, UTC)
    return Hour(f"{moment:%Y%m%d}", f"{moment:%H}")


@functools.lru_cache(maxsize=4_096)
def parse_hour(day: str, hour: str) -> Hour | None:
    """Read the names of a day's and an hour's folder; None when they are not the layout's."""
    if not (_DAY.fullmatch(day) and _HOUR.fullmatch(hour)):
        return None
    try:
        datetime.strptime(day + hour, "%Y%m%d%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return Hour(day, hour)


def relative(root: PurePath, path: PurePath) -> str:
    """A path as reports and the ledger have it: relative to the root, with slashes."""
    return path.relative_to(root).as_posix()


def hour_in(path: str) -> Hour | None:
    """The hour of a file, by its path relative to the root; None when it is not in an hour's place."""
    match path.removesuffix(".parquet").split("/"):
        case ["events", day, hour, _] | ["provenance", "raw", day, hour, _]:
            return parse_hour(day, hour)
        case ["provenance", _, _, day, hour]:
            return parse_hour(day, hour)
    return None


def raw_folder(hour: Hour) -> PurePosixPath:
    """Where an hour's raw files are, relative to the root."""
    return RAW / hour.day / hour.hour


def compacted_path(system_name: str, hour: Hour) -> PurePosixPath:
    """Where a system's compacted file of an hour is, relative to the root."""
    return COMPACTED / safe_name(system_name) / hour.day / f"{hour.hour}.parquet"


def late_path(system_name: str, hour: Hour) -> PurePosixPath:
    """Where a system's late file of an hour is, relative to the root."""
    return LATE / safe_name(system_name) / hour.day / f"{hour.hour}.parquet"


def events_folder(hour: Hour) -> PurePosixPath:
    """Where an hour's archived entries are, relative to the root."""
    return EVENTS / hour.day / hour.hour


def safe_name(system_name: str) -> str:
    """A system's name as one part of a path that can never leave its folder.

    Everything outside ``[A-Za-z0-9_-]`` is percent-encoded, but for dots inside the name; so is a leading
    underscore, since Spark takes such a folder for a hidden one. What would be longer than 200 bytes, or
    empty, is a prefix, ``~`` and 16 hex digits of the name's SHA-256. The rows keep the full name.
    """
    last = len(system_name) - 1
    parts = [_safe_part(letter, inner=0 < at < last, first=at == 0) for at, letter in enumerate(system_name)]
    name = "".join(parts)
    if name and len(name) <= _NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(system_name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    prefix, room = "", _NAME_BYTES_MAX - _DIGEST_DIGITS - 1
    for part in parts:
        if len(prefix) + len(part) > room:
            break
        prefix += part
    return f"{prefix}~{digest}"


def _safe_part(letter: str, *, inner: bool, first: bool) -> str:
    if (letter == "." and inner) or (_PLAIN.fullmatch(letter) and not (first and letter == "_")):
        return letter
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
