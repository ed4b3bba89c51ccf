"""Keys that an object of a JSON text has twice.

Of such keys, one reader takes the first and another the last (RFC 8259, section 4), so what one checks or
redacts may not be what another sees.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

FACETS: Final = frozenset({"facets", "inputFacets", "outputFacets"})
"""The names under which an event has facets."""


class _Part(msgspec.Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An event or a part of one, with its facets as they are: encoded again, it has no key twice."""

    event_time: str | None = None
    event_type: str | None = None
    producer: str | None = None
    schema_url: str | None = msgspec.field(default=None, name="schemaURL")
    run: _Part | None = None
    job: _Part | None = None
    dataset: _Part | None = None
    inputs: list[_Part] | None = None
    outputs: list[_Part] | None = None
    run_id: str | None = None
    namespace: str | None = None
    name: str | None = None
    facets: dict[str, msgspec.Raw] | None = None
    input_facets: dict[str, msgspec.Raw] | None = None
    output_facets: dict[str, msgspec.Raw] | None = None


_EVENT: Final = msgspec.json.Decoder(_Part)


def repeated_in_records(body: bytes, decoded: object) -> str | None:
    """A key that an object in a JSON text has twice; None if there is none.

    Args:
        body: the text.
        decoded: the text as structs that are encoded without defaults. Encoded, it has as many strings as the
            text, unless a key is there twice or its value is a default.

    Raises:
        ValueError: it is not valid JSON.
    """
    return None if has_as_many_strings(msgspec.json.encode(decoded), body) else repeated_in_text(body)


def repeated_in_text(body: bytes) -> str | None:
    """A key that an object in a JSON text has twice; None if there is none. Raises as above."""
    if is_without_repeats(body):
        return None
    return next(_repeated(json.loads(body, object_pairs_hook=_Pairs)), None)


def repeated_in_event(body: bytes) -> str | None:
    """A key that an event has twice outside of the facets of others, of which readers take the last.

    OpenLineage's integration for Spark itself writes `processing_engine` twice. Raises as above.
    """
    # Facets of our own may not repeat a key either; an escape can hide their names.
    has_own = b"waybill_" in body or b"\\" in body
    if is_without_repeats(body) if has_own else _is_plain_event(body):
        return None
    return next(_repeated(json.loads(body, object_pairs_hook=_Pairs), is_event=True), None)


def _is_plain_event(body: bytes) -> bool:
    """Whether an event has no key twice outside of its facets, and none that OpenLineage does not know."""
    try:
        text = msgspec.json.encode(_EVENT.decode(body))
    except msgspec.DecodeError:
        return False
    return len(text) == len(body) or has_as_many_strings(text, body)  # nothing in it becomes longer


def is_without_repeats(body: bytes) -> bool:
    """Whether no object has a key twice; False also for a number that does not fit 64 bits, or no JSON.

    Decoded and encoded again, a text loses such keys, and with each of them two quotes.
    """
    try:
        return has_as_many_strings(msgspec.json.encode(msgspec.json.decode(body)), body)
    except msgspec.DecodeError:
        return False


def has_as_many_strings(text: bytes, other: bytes) -> bool:
    """Whether two JSON texts have as many strings, keys included."""
    # What a program has encoded without blanks is often the same, and to see that is faster than to count.
    return text == other or _count_strings(text) == _count_strings(other)


def _count_strings(body: bytes) -> int:
    if b"\\" in body:
        body = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return body.count(b'"') // 2


class _Pairs(list[tuple[str, Any]]):
    """An object with all its keys."""


def _repeated(value: object, *, is_event: bool = False) -> Iterator[str]:
    """The keys that come again in a value; of an event, none of what is in the facets of others."""
    if isinstance(value, _Pairs):
        keys: set[str] = set()
        for key, inner in value:
            if key in keys:
                yield key
            keys.add(key)
            if not (is_event and key in FACETS and isinstance(inner, _Pairs)):
                yield from _repeated(inner, is_event=is_event)
            else:
                yield from _repeated(_Pairs(pair for pair in inner if pair[0].startswith("waybill_")))
    elif isinstance(value, list):
        for inner in value:
            yield from _repeated(inner, is_event=is_event)
