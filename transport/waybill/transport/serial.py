"""OpenLineage events of the client to JSON: what the client's own serialiser says, several times faster.

The client (`openlineage.client.serde.Serde`) turns the attrs objects into dictionaries, then drops what is
None, then encodes. Here one walk does the first two and msgspec the third. Two answers differ, because the
client's are no
JSON: a float that is not finite becomes null, and a lone surrogate (a file name that is not UTF-8, say) is
written as its escape.
"""

from __future__ import annotations

import datetime
import operator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import attr
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from openlineage.client.client import Event


def event_to_json(event: Event) -> bytes:
    """Encode an event of the OpenLineage client.

    Values that JSON has no form for become the client's own placeholder, ``<<non-serializable: TYPE>>``.
    """
    plain = _plain(event)
    try:
        return _encode(plain)
    except UnicodeEncodeError:
        return _encode(_without_surrogates(plain))


def _plain(value: Any) -> Any:  # noqa: ANN401 - any attrs object or JSON value goes in, a JSON value comes out
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return _plain_items(value.items())
    if kind is list:
        return [inner for inner in map(_plain, value) if inner is not None and inner != {}]
    fields = _fields_by_class.get(kind)
    if fields is None:
        if not attr.has(kind):
            return _plain_rare(value)
        fields = _fields_by_class[kind] = _fields_of(kind)
    names, values_of = fields
    return _plain_items(zip(names, values_of(value), strict=True))


def _plain_items(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {
        name: inner if type(inner) in _SCALARS else _plain(inner)
        for name, inner in items
        if inner is not None
    }


def _fields_of(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    names = tuple(field.name for field in attr.fields(kind))
    if len(names) > 1:
        return names, operator.attrgetter(*names)
    # attrgetter answers one name with the bare value.
    return names, lambda value: tuple(getattr(value, name) for name in names)


def _plain_rare(value: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return _plain(dict(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return _plain(list(value))
    if isinstance(value, (str, int, float)):
        return value
    if type(value).__name__ == "int64":  # numpy's, which the client knows by name as well
        return int(value)
    return f"<<non-serializable: {type(value).__qualname__}>>"


def _without_surrogates(value: Any) -> Any:  # noqa: ANN401 - any JSON value goes in and comes out
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(inner) for key, inner in value.items()}
    return [_without_surrogates(inner) for inner in value] if isinstance(value, list) else value


_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_fields_by_class: Final[dict[type, tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]]] = {}
_encode: Final = msgspec.json.Encoder().encode
