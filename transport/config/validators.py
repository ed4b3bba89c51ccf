"""The checks of settings. Each returns the value to use, or raises a ValueError that says what to give."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Final

from .backends import check_url

_DAYS_MAX: Final = 3_650_000
_NAME_CHARS_MAX: Final = 1_000
_SECONDS_MAX: Final = 86_400
_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})
DATED_FILE: Final = "dated-file"
TRIMMERS: Final = ("date", "key-value", "multi-dir-date", "year-month", "part-file", DATED_FILE)
"""The rules by which a path is part of a dataset; see `waybill.lineage.graph.naming`."""

_SIZE_UNITS: Final = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def folder(value: object) -> Path:
    """The absolute path of a local folder."""
    path = str(value) if isinstance(value, (str, Path)) else ""
    if not _is_text(path):
        raise ValueError("give the path of a folder, in UTF-8")
    if "://" in path:
        raise ValueError("give the path of a local folder; `waybill export` copies it to an object store")
    return file(path)


def file(value: object) -> Path:
    """The absolute path of a local file."""
    try:
        return Path(text(value)).expanduser().absolute()
    except RuntimeError:
        raise ValueError("there is no such user; give the absolute path") from None


def text(value: object) -> str:
    """Text that is not empty."""
    if not isinstance(value, str):
        what = "give text, in quotes if it is a number or a word such as true"
        raise ValueError(what)  # noqa: TRY004 - as every check does
    if not _is_text(value):
        raise ValueError("give text that is not empty, in UTF-8")
    return value


def _is_text(value: str) -> bool:
    """Whether it is not empty, and has no bytes of an environment variable that are not UTF-8."""
    with contextlib.suppress(UnicodeEncodeError):
        return b"\0" not in value.encode() and bool(value)
    return False


def name(value: object) -> str:
    """Text short enough for a name."""
    given = text(value)
    if len(given) > _NAME_CHARS_MAX:
        raise ValueError(f"give at most {_NAME_CHARS_MAX} characters")
    return given


def flag(value: object) -> bool:
    """Yes or no, in any of the usual words."""
    word = str(value).strip().lower()
    if word not in _YES | _NO:
        raise ValueError("give true or false")
    return word in _YES


def days(value: object) -> float:
    """A number of days."""
    number = _number(value)
    if not 0 < number <= _DAYS_MAX:
        raise ValueError(f"give a number of days greater than 0, at most {_DAYS_MAX}")
    return number


def count(value: object) -> int:
    """How many of something, 0 or more."""
    number = _number(value)
    if not 0 <= number < 2**53 or number != int(number):
        raise ValueError("give a whole number, 0 or more")
    return int(number)


def _number(value: object) -> float:
    """A number, or NaN, which is in no range."""
    with contextlib.suppress(ValueError):
        return math.nan if isinstance(value, bool) else float(str(value))
    return math.nan


def size_bytes(value: object) -> int:
    """A size in bytes."""
    text = str(value).strip().lower().replace("_", "").replace(" ", "")
    digits = text.rstrip("bgikm")
    number = _number(digits) * _SIZE_UNITS.get(text[len(digits) :] or "b", math.nan)
    if not 2**20 <= number < 2**63:
        raise ValueError("give a size of at least 1 MiB, in bytes or in a form like 500MiB or 10GiB")
    return int(number)


def _parts(value: object, what: str) -> tuple[str, ...]:
    """Texts separated by commas, or a collection of them, each stripped and not empty."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple, set, frozenset)) or not all(
        isinstance(part, str) for part in parts
    ):
        raise ValueError(what)
    return tuple(part.strip() for part in parts if part.strip())


def keys(value: object) -> frozenset[str]:
    """Keys separated by commas, or a list of them."""
    return frozenset(_parts(value, "give annotation keys separated by commas"))


def trimmers(value: object) -> tuple[str, ...]:
    """Rules separated by commas, or a list of them, in the order of `TRIMMERS`."""
    what = f"give some of {', '.join(TRIMMERS)}, separated by commas; none: leave it empty"
    given = _parts(value, what)
    if not {*given} <= {*TRIMMERS}:
        raise ValueError(what)
    return tuple(rule for rule in TRIMMERS if rule in given)


def places(value: object) -> tuple[str, ...]:
    """Folders or URLs separated by commas, or a list of them."""
    found = _parts(value, "give folders or URLs of object stores, separated by commas")
    if any(place.startswith(("http:", "https:")) for place in found):
        raise ValueError(
            "give folders or URLs of object stores; use `waybill spark catch-up` to query a History Server"
        )
    return found


def seconds(value: object) -> float:
    """A number of seconds."""
    number = _number(value)
    if not 1 <= number <= _SECONDS_MAX:
        raise ValueError(f"give a number of seconds from 1 to {_SECONDS_MAX}")
    return number


def url(value: object) -> str:
    """The address of a backend."""
    given = text(value)
    check_url(given)
    return given


def address(value: object) -> str:
    """``host:port``."""
    given = text(value)
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("give host:port, such as 127.0.0.1:8090")
    if int(port) >= 2**16:
        raise ValueError("give a port from 0 to 65535, such as 127.0.0.1:8090")
    return given


def one_of(words: tuple[str, ...], value: object) -> object:
    """One of a few words."""
    if value not in words:
        raise ValueError(f"give {' or '.join(words)}")
    return value
