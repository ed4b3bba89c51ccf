"""The layout's names: the path for each record, and the meaning of each path.

    provenance/raw/YYYYMMDD/HH/<node>-<first>-<last>.parquet
    provenance/compacted/<safe system name>/YYYYMMDD/HH.parquet
    provenance/late/<safe system name>/YYYYMMDD/HH.parquet
    provenance/aged/<safe system name>/YYYYMMDD.json
    provenance/damaged/<path below provenance>.<16 hex digits>.damaged
    provenance/filed/YYYYMMDD/HH/<node>.json
    provenance/ledger/YYYYMMDD/…
    provenance/seals/YYYYMMDD/HH.json
    provenance/keys/…
    provenance/relations/<safe system name>/YYYYMMDD-<node>.parquet
    provenance/exports/<destination>/<safe system name>/YYYYMMDD.json
    events/YYYYMMDD/HH/<node>-<first>-<last>.parquet

Nothing here accesses a disk. Each name has one formatter and one parser, so no other module knows its format.
"""

from __future__ import annotations

import functools
import hashlib
import re
from datetime import UTC, date, datetime
from pathlib import PurePath, PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

HOUR_MS: Final = 3_600_000
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()

LAYOUT: Final = "layout"
"""The name of the projection that files records, in the journal and the root."""
OF_PLAIN_SPARK: Final = "plain spark"
"""The layout's state key of records that rest on the word of Spark's listener alone."""

ARCHIVE: Final = "archive"
"""The name of the projection that keeps every event."""

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
KEYS: Final = PurePosixPath("provenance/keys")
EXPORTS: Final = PurePosixPath("provenance/exports")
RELATIONS: Final = PurePosixPath("provenance/relations")
EVENTS: Final = PurePosixPath("events")

PARTS: Final = (RAW, COMPACTED, LATE, AGED, DAMAGED, FILED, LEDGER, SEALS, EXPORTS)
"""The folders below ``provenance``, of which a root that was ever filed into has one at least."""

_NAME_BYTES_MAX: Final = 200
_DIGEST_DIGITS: Final = 16
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]")
_DAY: Final = re.compile(r"[0-9]{8}")
_HOUR: Final = re.compile(r"[0-9]{2}")
_RAW_NAME: Final = re.compile(r"([A-Za-z0-9]+)-([1-9][0-9]*)-([1-9][0-9]*)\.parquet")


class Hour(NamedTuple):
    """One UTC hour in the layout's format; hours compare in order of time."""

    day: str
    """``YYYYMMDD``."""
    hour: str
    """``HH``."""

    @property
    def start_ms(self) -> int:
        """Its first instant, in epoch milliseconds."""
        # A question without bounds asks this of every hour of years, and `strptime` is slow.
        day = date(int(self.day[:4]), int(self.day[4:6]), int(self.day[6:]))
        return ((day.toordinal() - _EPOCH_DAY) * 24 + int(self.hour)) * HOUR_MS

    @property
    def end_ms(self) -> int:
        """The first instant after it, in epoch milliseconds."""
        return self.start_ms + HOUR_MS


class RawName(NamedTuple):
    """The name of a raw or archived file: its journal's node, and its range of entries."""

    node: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.node}-{self.first}-{self.last}.parquet"

    @classmethod
    def parse(cls, name: str) -> RawName | None:
        """Parse a file name; None if it is not such a name."""
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
    """Parse the names of a day's and an hour's folder; None if they are not the layout's."""
    if not (_DAY.fullmatch(day) and _HOUR.fullmatch(hour)):
        return None
    try:
        datetime.strptime(day + hour, "%Y%m%d%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return Hour(day, hour)


def relative(root: PurePath, path: PurePath) -> str:
    """A path as in reports and the ledger: relative to the root, with slashes."""
    return path.relative_to(root).as_posix()


def hour_in(path: str) -> Hour | None:
    """The hour of a file, by its path relative to the root; None if it is not in an hour's place."""
    match path.removesuffix(".parquet").split("/"):
        case ["events", day, hour, _] | ["provenance", "raw", day, hour, _]:
            return parse_hour(day, hour)
        case ["provenance", _, _, day, hour]:
            return parse_hour(day, hour)
    return None


def raw_folder(hour: Hour) -> PurePosixPath:
    """The folder of an hour's raw files, relative to the root."""
    return RAW / hour.day / hour.hour


def compacted_path(system_name: str, hour: Hour) -> PurePosixPath:
    """The path of a system's compacted file of an hour, relative to the root."""
    return COMPACTED / safe_name(system_name) / hour.day / f"{hour.hour}.parquet"


def late_path(system_name: str, hour: Hour) -> PurePosixPath:
    """The path of a system's late file of an hour, relative to the root."""
    return LATE / safe_name(system_name) / hour.day / f"{hour.hour}.parquet"


def relations_path(system_name: str, day: str, node: str) -> PurePosixPath:
    """The path of what a journal knows of a system's files of a day beside their records, below the root."""
    return RELATIONS / safe_name(system_name) / f"{day}-{node}.parquet"


def events_folder(hour: Hour) -> PurePosixPath:
    """The folder of an hour's archived entries, relative to the root."""
    return EVENTS / hour.day / hour.hour


def safe_name(system_name: str) -> str:
    """Turn a system's name into one part of a path, which can never leave its folder.

    Characters outside ``[A-Za-z0-9_-]`` are percent-encoded, except dots inside the name; so is a leading
    underscore, because Spark treats such folders as hidden. A result that would be empty or longer than 200
    bytes becomes a prefix, ``~`` and 16 hex digits of the name's SHA-256. The rows keep the full name.
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


def system_of(folder: str) -> str | None:
    """The system whose `safe_name` a folder has; None where that is shortened, or no such name."""
    try:
        name = unquote_to_bytes(folder).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return name if safe_name(name) == folder else None


def _safe_part(letter: str, *, inner: bool, first: bool) -> str:
    if (letter == "." and inner) or (_PLAIN.fullmatch(letter) and not (first and letter == "_")):
        return letter
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogatepass"))
