"""Keys that an object of a JSON text has twice.

Of such keys, one reader takes the first and another the last (RFC 8259, section 4), so what one checks or
redacts may not be what another sees.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


def repeated_key(body: bytes, decoded: object = None) -> str | None:
    """A key that an object in a JSON text has twice; None if there is none.

    Decoded and encoded again, a text loses these keys, and with each of them two quotes.

    Args:
        body: the text.
        decoded: the text as structs that are encoded without defaults, if somebody has decoded it already: it
            has as many strings as the text, unless a key is there twice or its value is a default.

    Raises:
        ValueError: it is not valid JSON.
        RecursionError: it is nested too deeply.
    """
    if decoded is not None and _has_as_many_strings(msgspec.json.encode(decoded), body):
        return None
    try:
        again = msgspec.json.encode(msgspec.json.decode(body))
    except msgspec.DecodeError:  # a number that does not fit 64 bits, or no JSON
        return _first_repeated(body)
    return None if _has_as_many_strings(again, body) else _first_repeated(body)


def _has_as_many_strings(text: bytes, other: bytes) -> bool:
    # What a program has encoded without blanks is often the same, and to see that is faster than to count.
    return text == other or _count_strings(text) == _count_strings(other)


def _count_strings(body: bytes) -> int:
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return body.count(b'"') // 2


def _first_repeated(body: bytes) -> str | None:
    found: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        keys: set[str] = set()
        for key, _ in pairs:
            if key in keys:
                found.append(key)
            keys.add(key)

    json.loads(body, object_pairs_hook=note)
    return found[0] if found else None
