"""What DeltaFi's client asks, as its query parameters say it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from waybill.collector.http import Problem
from waybill.exporter import Query
from waybill.facets import FinalState

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000

_NUMBER_DIGITS_MAX: Final = 15
_ANNOTATION: Final = ("annotation_key", "annotation_value")


class QueryParams(NamedTuple):
    """Which records, and which part of the answer.

    Attributes:
        query: the conditions, and how many records the part has at most.
        offset: how many of the newest come before it.
    """

    query: Query
    offset: int


def query_params_of(text: str) -> QueryParams:
    """Read the query string of `GET /provenance/query`.

    A `limit` beyond `LIMIT_MAX` is taken as that, as DeltaFi does.

    Raises:
        Problem: a parameter is unknown, malformed or given twice; it names the parameter.
    """
    values = _values(text, (*_TEXTS, *_ANNOTATION, "final_state", "from", "to", "limit", "offset"))
    limit = min(_number(values, "limit", 1) or LIMIT_DEFAULT, LIMIT_MAX)
    offset = _number(values, "offset", 0) or 0
    conditions = _conditions(values)
    if "final_state" in values:
        conditions["final_state"] = _read(values, "final_state", _final_state)
    conditions["since_ms"] = _number(values, "from", 0)
    # DeltaFi's `to` is the last instant that counts, ours the first that does not.
    last_ms = _number(values, "to", 0)
    conditions["until_ms"] = None if last_ms is None else last_ms + 1
    return QueryParams(Query(**conditions, limit=limit), offset)


def filter_of(text: str) -> Query:
    """Read the query string of `GET /provenance/stats`.

    Raises:
        Problem: a parameter is unknown, malformed or given twice; it names the parameter.
    """
    names = (*(name for name in _TEXTS if name != "system_name"), *_ANNOTATION)
    return Query(**_conditions(_values(text, names)))


_TEXTS: Final = ("did", "parent_did", "system_name", "data_source", "data_sink", "filename")


def _conditions(values: dict[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {name: values[name] for name in _TEXTS if name in values}
    key, value = (values.get(name) for name in _ANNOTATION)
    if (key is None) != (value is None):
        missing = _ANNOTATION[0] if key is None else _ANNOTATION[1]
        raise malformed(missing, "is missing beside the other one; give both")
    if key is not None:
        given["annotations"] = {key: value}
    return given


def _values(text: str, known: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        detail = f"the query string cannot be read ({error}); encode it as UTF-8 in percents"
        raise Problem(HTTPStatus.BAD_REQUEST, detail) from None
    for name, value in pairs:
        if name not in known:
            raise malformed(name[:60], f"is not known; known are {', '.join(known)}")
        if name in values:
            raise malformed(name, "is given twice; give it once")
        if "\0" in value:
            raise malformed(name, "holds a NUL character; leave it out")
        if value:  # a form's empty field asks for nothing
            values[name] = value
    return values


def _number(values: dict[str, str], name: str, least: int) -> int | None:
    if name not in values:
        return None
    text = values[name]
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX) or int(text) < least:
        raise malformed(name, f"is {text[:40]!r}; give a whole number from {least} on")
    return int(text)


def _final_state(text: str) -> FinalState:
    return FinalState(text.upper())


def _read(values: dict[str, str], name: str, read: Callable[[str], Any]) -> Any:  # noqa: ANN401 - any field
    try:
        return read(values[name])
    except ValueError:
        known = ", ".join(FinalState)
        raise malformed(name, f"is {values[name][:40]!r}; give one of {known}") from None


def malformed(name: str, what: str) -> Problem:
    """What is said of a parameter that cannot be."""
    return Problem(HTTPStatus.BAD_REQUEST, f"the parameter {name} {what}")
