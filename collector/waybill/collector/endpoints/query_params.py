"""The query parameters of DeltaFi's client."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from waybill.collector.http import Problem
from waybill.exporter import Query
from waybill.exporter.query import PatternError
from waybill.facets import FinalState
from waybill.transport.config import MARQUEZ

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000

_NUMBER_DIGITS_MAX: Final = 15
_TEXTS: Final = ("did", "parent_did", "system_name", "data_source", "data_sink", "filename")
_ANNOTATION: Final = ("annotation_key", "annotation_value")
_PARTIAL: Final = "partial"


class QueryParams(NamedTuple):
    """The records to return, how many of the newest to skip, and whether an incomplete answer is enough."""

    query: Query
    offset: int = 0
    is_partial: bool = False


class TraceParams(NamedTuple):
    """How far to follow a file, in which format to answer, and whether an incomplete answer is enough."""

    up: bool
    down: bool
    depth: int | None
    as_of_ms: int | None
    format: str
    is_unfolded: bool
    is_partial: bool


def query_params_of(text: str, *, from_deltafi: bool = False) -> QueryParams:
    """Parse the query string of a query for records.

    A `limit` beyond `LIMIT_MAX` counts as `LIMIT_MAX`. With `from_deltafi`, half an annotation is ignored:
    DeltaFi's dashboard sends the query while the other half is still being typed.

    Raises:
        Problem: a parameter is unknown, malformed or given twice; it names the parameter.
    """
    values = _values(text, (*_TEXTS, *_ANNOTATION, "final_state", "from", "to", "limit", "offset", _PARTIAL))
    limit = min(_number(values, "limit", 1) or LIMIT_DEFAULT, LIMIT_MAX)
    offset = _number(values, "offset", 0) or 0
    conditions = _conditions(values, from_deltafi=from_deltafi)
    if "final_state" in values:
        try:
            conditions["final_state"] = FinalState(values["final_state"].upper())
        except ValueError:
            given, known = values["final_state"][:40], ", ".join(FinalState)
            raise malformed("final_state", f"is {given!r}; use one of {known}") from None
    conditions["since_ms"] = _number(values, "from", 0)
    # DeltaFi's `to` is the last instant that counts, ours the first that does not.
    last_ms = _number(values, "to", 0)
    conditions["until_ms"] = None if last_ms is None else last_ms + 1
    return QueryParams(_query({**conditions, "limit": offset + limit}), offset, _is_partial(values))


def filter_of(text: str, *, from_deltafi: bool = False) -> QueryParams:
    """Parse the query string of a query for statistics, as `query_params_of` does."""
    names = (*(name for name in _TEXTS if name != "system_name"), *_ANNOTATION, _PARTIAL)
    values = _values(text, names)
    return QueryParams(_query(_conditions(values, from_deltafi=from_deltafi)), is_partial=_is_partial(values))


def trace_params_of(text: str, accept: str, media: Mapping[str, str]) -> TraceParams:
    """Parse the query string of a question for a journey.

    If only one of `up` and `down` is given, the other is its opposite: so ``up=true`` asks for ancestors
    only, as `waybill trace --up` does, and so does ``down=false``.

    Args:
        text: the query string.
        accept: the request's header, which counts where no `format` is given.
        media: by format, its media type; the first is the one for requests that ask for none.
    """
    values = _values(text, ("up", "down", "depth", "as_of", "format", "unfold", _PARTIAL))
    up, down = _flag(values, "up"), _flag(values, "down")
    given = values.get("format") or _accepted(accept, media)
    if given not in media:
        raise malformed("format", f"is {given[:40]!r}; use one of {', '.join(media)}")
    return TraceParams(
        up=not down if up is None else up,
        down=not up if down is None else down,
        depth=_number(values, "depth", 0),
        as_of_ms=_number(values, "as_of", 0),
        format=given,
        is_unfolded=bool(_flag(values, "unfold")),
        is_partial=_is_partial(values),
    )


def _accepted(accept: str, media: Mapping[str, str]) -> str:
    """The first format that a request accepts."""
    formats = {kind.partition(";")[0]: name for name, kind in media.items()}
    asked = (one.partition(";")[0].strip().lower() for one in accept.split(","))
    return next((formats[one] for one in asked if one in formats), next(iter(media)))


def backend_of(text: str) -> str:
    """Parse the query string of a summary's link: the name of its backend."""
    return _values(text, ("backend",)).get("backend", MARQUEZ)


def _query(conditions: dict[str, Any]) -> Query:
    try:
        return Query(**conditions)
    except PatternError as error:
        raise malformed("filename", str(error)) from None


def _is_partial(values: dict[str, str]) -> bool:
    return bool(_flag(values, _PARTIAL))


def _flag(values: dict[str, str], name: str) -> bool | None:
    given = values.get(name)
    if given not in {"true", "false", None}:
        raise malformed(name, f"is {given[:40]!r}; use true or false")
    return None if given is None else given == "true"


def _conditions(values: dict[str, str], *, from_deltafi: bool) -> dict[str, Any]:
    conditions: dict[str, Any] = {name: values[name] for name in _TEXTS if name in values}
    key, value = (values.get(name) for name in _ANNOTATION)
    if (key is None) != (value is None) and not from_deltafi:
        missing = _ANNOTATION[0] if key is None else _ANNOTATION[1]
        raise malformed(missing, "is missing; annotation_key and annotation_value go together")
    if key is not None and value is not None:
        conditions["annotations"] = {key: value}
    return conditions


def _values(text: str, known: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        detail = f"the query string cannot be read ({error}); percent-encode it as UTF-8"
        raise Problem(HTTPStatus.BAD_REQUEST, detail) from None
    for name, value in pairs:
        if name not in known:
            raise malformed(name[:60], f"is unknown; the parameters are {', '.join(known)}")
        if name in values:
            raise malformed(name, "appears twice; use it once")
        if "\0" in value:
            raise malformed(name, "contains a NUL character; remove it")
        if value:  # an empty field of a form sets no condition
            values[name] = value
    return values


def _number(values: dict[str, str], name: str, least: int) -> int | None:
    if name not in values:
        return None
    text = values[name]
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX) or int(text) < least:
        raise malformed(name, f"is {text[:40]!r}; use a whole number of at least {least}")
    return int(text)


def malformed(name: str, what: str) -> Problem:
    """Refuse a query parameter."""
    return Problem(HTTPStatus.BAD_REQUEST, f"the parameter {name} {what}")
