"""What a setting may be: a check returns the value to use, or raises a ValueError that says what to give."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final, cast

from waybill.transport.config.backends import check_url

_DAYS_MAX: Final = 3_650_000
_NAME_CHARS_MAX: Final = 1_000
_YES: Final = frozenset({"true", "1", "yes", "on"})
_NO: Final = frozenset({"false", "0", "no", "off"})
_SIZE_UNITS: Final = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def folder(value: object) -> Path:
    """The path of a local folder, in full."""
    text = os.fspath(value) if isinstance(value, (str, Path)) else ""
    if not text or "\0" in text or not _is_unicode(text):
        raise ValueError("give the path of a folder, in UTF-8")
    if "://" in text:
        raise ValueError("give the path of a local folder; `waybill export` copies it to an object store")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:
        raise ValueError("there is no such user's home, give the path in full") from None


def text(value: object) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value or "\0" in value or not _is_unicode(value):
        raise ValueError("give a text that is not empty, in UTF-8")
    return value


def name(value: object) -> str:
    """A text short enough to be a name."""
    given = text(value)
    if len(given) > _NAME_CHARS_MAX:
        raise ValueError(f"give at most {_NAME_CHARS_MAX} characters")
    return given


def _is_unicode(text: str) -> bool:
    """False for an environment variable or argument with bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def flag(value: object) -> bool:
    """Yes or no, in the words that people use."""
    word = str(value).strip().lower()
    if word not in _YES | _NO:
        raise ValueError("give true or false")
    return word in _YES


def days(value: object) -> float:
    """A number of days."""
    number = math.nan if isinstance(value, bool) else _float(value)
    if not 0 < number <= _DAYS_MAX:
        raise ValueError(f"give a number of days greater than 0, at most {_DAYS_MAX}")
    return number


def count(value: object) -> int:
    """How many of something, 0 or more."""
    number = math.nan if isinstance(value, bool) else _float(value)
    if not 0 <= number < 2**53 or number != int(number):
        raise ValueError("give a whole number of 0 or more")
    return int(number)


def _float(value: object) -> float:
    try:
        return float(cast("str", value))
    except (TypeError, ValueError):
        return math.nan


def size_bytes(value: object) -> int:
    """A size in bytes."""
    text = str(value).strip().lower().replace("_", "").replace(" ", "")
    digits = text.rstrip("bgikm")
    number = _float(digits) * _SIZE_UNITS.get(text[len(digits) :] or "b", math.nan)
    if isinstance(value, bool) or not 2**20 <= number < 2**63:
        raise ValueError("give a size of at least 1 MiB, in bytes or as 500MiB or 10GiB")
    return int(number)


def keys(value: object) -> frozenset[str]:
    """Keys with commas between them, or a list of them."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple, set, frozenset)) or not all(
        isinstance(part, str) for part in parts
    ):
        raise ValueError("give annotation keys separated by commas")
    return frozenset(part.strip() for part in parts if part.strip())


def url(value: object) -> str:
    """The address of a backend."""
    check_url(text(value))
    return cast("str", value)


def address(value: object) -> str:
    """``host:port``."""
    host, _, port = text(value).rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 2**16:
        raise ValueError("give host:port, as 127.0.0.1:8090")
    return cast("str", value)


def one_of(words: tuple[str, ...], value: object) -> object:
    """One of a few words."""
    if value not in words:
        raise ValueError(f"give {' or '.join(words)}")
    return value
