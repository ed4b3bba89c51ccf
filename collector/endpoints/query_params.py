"""The query parameters: those of DeltaFi's client, and others beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec

from waybill.exporter import Query
from waybill.exporter.query import (
    CONDITIONS,
    Condition,
    ConditionKind,
    Dimension,
    InvalidQueryError,
    read_conditions,
    read_dimensions,
)
from waybill.transport.config import MARQUEZ

from ..http import Problem

_Params = TypeVar("_Params", bound=msgspec.Struct)

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000

_NUMBER_DIGITS_MAX: Final = 15
_REPEATABLE: Final = {condition.parameter for condition in CONDITIONS if condition.is_repeatable}
_FILTERS: Final = (*(name for condition in CONDITIONS for name in condition.parameters), "partial")
_PAGES: Final = ("limit", "offset", "order", "after")


class QueryParams(NamedTuple):
    """The records to return, how many to skip, whether an incomplete answer is enough, and what to count by.

    The query asks for one record more than the limit: it tells whether another page follows.
    """

    query: Query
    offset: int = 0
    limit: int = 0
    is_partial: bool = False
    by: tuple[Dimension, ...] = ()


class TraceParams(NamedTuple):
    """How far to follow a file, in which format to answer, and whether an incomplete answer is enough."""

    up: bool
    down: bool
    depth: int | None
    as_of_ms: int | None
    format: str
    is_unfolded: bool
    is_partial: bool


@contextlib.contextmanager
def _naming_parameters() -> Iterator[None]:
    """Refuse the parameter that gave a value which cannot be."""
    try:
        yield
    except InvalidQueryError as error:
        name = next((one.parameter for one in CONDITIONS if one.field == error.field), error.field)
        raise malformed(name, f"is {error.value!r}, which {error.what}") from None


@_naming_parameters()
def query_params_of(text: str, *, from_deltafi: bool = False) -> QueryParams:
    """Parse the query string of a query for records.

    A `limit` beyond `LIMIT_MAX` counts as `LIMIT_MAX`. With `from_deltafi`, half an annotation is ignored:
    DeltaFi's dashboard sends the query while the other half is still being typed.

    Raises:
        Problem: a parameter is unknown, malformed or given twice; it names the parameter.
    """
    several = _several(text, (*_FILTERS, *_PAGES), _REPEATABLE)
    values = _single(several)
    limit = min(_number(values, "limit", 1) or LIMIT_DEFAULT, LIMIT_MAX)
    offset = _number(values, "offset", 0) or 0
    order = values.get("order", "newest")
    if order not in {"newest", "oldest"}:
        raise malformed("order", f"is {order[:40]!r}; use newest or oldest")
    query = Query(
        **_conditions(several, from_deltafi=from_deltafi),
        oldest_first=order == "oldest",
        after=values.get("after"),
        limit=offset + limit + 1,
    )
    return QueryParams(query, offset, limit, is_partial=bool(_flag(values, "partial")))


@_naming_parameters()
def filter_of(text: str, *, from_deltafi: bool = False) -> QueryParams:
    """Parse the query string of a query for statistics, as `query_params_of` does."""
    several = _several(text, (*_FILTERS, "by"), _REPEATABLE)
    values = _single(several)
    query = Query(**_conditions(several, from_deltafi=from_deltafi))
    return QueryParams(query, is_partial=bool(_flag(values, "partial")), by=read_dimensions(values.get("by")))


def next_page(text: str, cursor: str) -> str:
    """The query string of the page that goes on after a cursor."""
    kept = [pair for pair in parse_qsl(text, keep_blank_values=True) if pair[0] not in {"after", "offset"}]
    return urlencode([*kept, ("after", cursor)])


def trace_params_of(text: str, accept: str, media: Mapping[str, str]) -> TraceParams:
    """Parse the query string of a question for a journey.

    If only one of `up` and `down` is given, the other is its opposite: so ``up=true`` asks for ancestors
    only, as `waybill trace --up` does, and so does ``down=false``.

    Args:
        text: the query string.
        accept: the request's header, which counts where no `format` is given.
        media: by format, its media type; the first is the one for requests that ask for none.
    """
    values = _single(_several(text, ("up", "down", "depth", "as_of", "format", "unfold", "partial")))
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
        is_partial=bool(_flag(values, "partial")),
    )


def params_of(text: str, kind: type[_Params]) -> _Params:
    """Parse a query string whose parameters are the fields of a struct, as of a question about the graph."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name, value in _single(_several(text, tuple(fields))).items():
        try:
            given[name] = msgspec.convert(value, fields[name].type, strict=False)
        except msgspec.ValidationError as error:
            raise malformed(name, f"is {value[:40]!r}: {error}") from None
    for name, field in fields.items():
        if field.required and name not in given:
            raise malformed(name, "is missing")
    return kind(**given)


def _accepted(accept: str, media: Mapping[str, str]) -> str:
    """The first format that a request accepts."""
    formats = {kind.partition(";")[0]: name for name, kind in media.items()}
    asked = (one.partition(";")[0].strip().lower() for one in accept.split(","))
    return next((formats[one] for one in asked if one in formats), next(iter(media)))


def single_params_of(text: str, known: tuple[str, ...]) -> dict[str, str]:
    """Parse a query string in which each of these parameters may be once."""
    return _single(_several(text, known))


def backend_of(text: str) -> str:
    """Parse the query string of a summary's link: the name of its backend."""
    return single_params_of(text, ("backend",)).get("backend", MARQUEZ)


def _flag(values: Mapping[str, str], name: str) -> bool | None:
    given = values.get(name)
    if given not in {"true", "false", None}:
        raise malformed(name, f"is {given[:40]!r}; use true or false")
    return None if given is None else given == "true"


def _conditions(several: Mapping[str, Sequence[str]], *, from_deltafi: bool) -> dict[str, Any]:
    given = {one.field: several[one.parameter] for one in CONDITIONS if one.parameter in several}
    conditions = read_conditions(given, _instant)
    for one in CONDITIONS:
        if one.kind is ConditionKind.PAIRS and (
            pair := _pair_of(several, one.deltafi, from_deltafi=from_deltafi)
        ):
            conditions[one.field] = {**conditions.get(one.field, {}), **pair}
    return conditions


def _instant(condition: Condition, text: str) -> int:
    name = condition.parameter
    return (_number({name: text}, name, 0) or 0) + (condition.kind is ConditionKind.UNTIL)


def _pair_of(
    several: Mapping[str, Sequence[str]], names: Sequence[str], *, from_deltafi: bool
) -> dict[str, str]:
    """The pair that DeltaFi's two parameters for a key and its value give, if both do."""
    missing = [name for name in names if name not in several]
    if len(missing) == 1 and not from_deltafi:
        raise malformed(missing[0], f"is missing; {' and '.join(names)} go together")
    return {} if missing else {several[names[0]][0]: several[names[1]][0]}


def _single(several: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: some[0] for name, some in several.items()}


def _several(text: str, known: tuple[str, ...], repeatable: Collection[str] = ()) -> dict[str, list[str]]:
    several: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        detail = f"the query string cannot be read ({error}); percent-encode it as UTF-8"
        raise Problem(HTTPStatus.BAD_REQUEST, detail) from None
    for name, value in pairs:
        if name not in known:
            raise malformed(name[:60], f"is unknown; the parameters are {', '.join(known)}")
        if name in several and name not in repeatable:
            raise malformed(name, "appears twice; use it once")
        if "\0" in value:
            raise malformed(name, "contains a NUL character; remove it")
        if value:  # an empty field of a form sets no condition
            several.setdefault(name, []).append(value)
    return several


def _number(values: Mapping[str, str], name: str, least: int) -> int | None:
    if name not in values:
        return None
    text = values[name]
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX) or int(text) < least:
        raise malformed(name, f"is {text[:40]!r}; use a whole number of at least {least}")
    return int(text)


def malformed(name: str, what: str) -> Problem:
    """Refuse a query parameter."""
    return Problem(HTTPStatus.BAD_REQUEST, f"the parameter {name} {what}")
