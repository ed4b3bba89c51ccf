"""Serialise the client's OpenLineage events to JSON like the client itself, but several times faster.

The client (`openlineage.client.serde.Serde`) turns the attrs objects into dictionaries, then drops None
values, then encodes. Here one walk does the first two steps, and msgspec does the third. The output differs
in two cases where the client's is not valid JSON: a float that is not finite becomes null, and a lone
surrogate, as in a file name that is not UTF-8, becomes its escape.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import attr
import msgspec

if TYPE_CHECKING:
    from openlineage.client.client import Event


def event_to_json(event: Event) -> bytes:
    """Encode an event of the OpenLineage client.

    Values that JSON cannot represent become the client's own placeholder, ``<<non-serializable: TYPE>>``.
    """
    plain = _plain[type(event)](event)
    try:
        return _encode(plain)
    except (UnicodeEncodeError, TypeError):
        return _encode(_valid(plain))


class _PlainByType(dict[type, "Callable[[Any], Any]"]):
    """The functions that make JSON values, by type, for every type seen so far."""

    def __missing__(self, kind: type) -> Callable[[Any], Any]:
        plain = self[kind] = _plain_of_class(kind) if attr.has(kind) else _plain_rare
        return plain


def _plain_of_class(kind: type) -> Callable[[Any], Any]:
    """Compile a function for one attrs class, field by field, as attrs compiles its ``__init__``.

    A loop over the field names takes twice as long, and this is most of the cost of an emit.
    """
    lines = ["def plain(value):", "    items = {}"]
    for field in attr.fields(kind):
        lines += (
            f"    inner = value.{field.name}",
            "    if inner is not None:",
            f"        items[{field.name!r}] = inner if type(inner) is str else by_type[type(inner)](inner)",
        )
    lines.append("    return items")
    names: dict[str, Any] = {"by_type": _plain}
    exec("\n".join(lines), names)  # noqa: S102 - contains only the class's own field names, which attrs compiles too
    return cast("Callable[[Any], Any]", names["plain"])


def _plain_dict(items: dict[str, Any]) -> dict[str, Any]:
    return {
        name: inner if type(inner) is str else _plain[type(inner)](inner)
        for name, inner in items.items()
        if inner is not None
    }


def _plain_list(values: Iterable[Any]) -> list[Any]:
    plain = (_plain[type(value)](value) for value in values)
    return [value for value in plain if value is not None and value != {}]


def _plain_rare(value: Any) -> Any:  # noqa: ANN401 - any value goes in, a JSON value comes out
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return _plain_dict(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _plain_list(value)
    if isinstance(value, (str, int, float)):
        return value
    if type(value).__name__ == "int64":  # numpy's, which the client also recognises by name
        return int(value)
    return f"<<non-serializable: {type(value).__qualname__}>>"


def _valid(value: Any) -> Any:  # noqa: ANN401 - any JSON value goes in and comes out
    """The same value, with keys that are strings, and strings that are UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_valid(_key(key)): _valid(inner) for key, inner in value.items()}
    return [_valid(inner) for inner in value] if isinstance(value, list) else value


def _key(key: object) -> str:
    """A key as a string, with None and booleans as the client writes them."""
    return _encode(key).decode() if key is None or isinstance(key, bool) else str(key)


_plain: Final = _PlainByType({dict: _plain_dict, list: _plain_list})
_plain.update(dict.fromkeys((str, int, float, bool, type(None)), lambda value: value))
_encode: Final = msgspec.json.Encoder().encode
