"""The query parameters of the endpoints: those of DeltaFi's client, and others beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple
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
from waybill.facets import FinalState
from waybill.transport.config import MARQUEZ

from ..http import NUMBER_MAX, Given, convert_params, malformed, read_params, split_query

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000

_VALUES_MAX: Final = 20
_Count = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Instant = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX, description="As known then; epoch milliseconds.")]


class Partial(msgspec.Struct):
    """Whether an answer that lacks records is enough."""

    partial: bool = False


class Page(Partial):
    """Which of the records to return."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=NUMBER_MAX)] = LIMIT_DEFAULT
    offset: _Count = 0
    order: Literal["newest", "oldest"] = "newest"
    after: str = ""


class Sums(Partial):
    """What to count by."""

    by: Annotated[
        str,
        msgspec.Meta(
            description="Count by these, one or several with commas, by default by each of the first three: "
            f"{', '.join(Dimension)}."
        ),
    ] = ""


class Trace(Partial):
    """How far to follow a file, and in which format to answer."""

    up: Annotated[
        bool | None, msgspec.Meta(description="Follow the files that it came from; default: not `down`.")
    ] = None
    down: Annotated[
        bool | None, msgspec.Meta(description="Follow the files that came from it; default: not `up`.")
    ] = None
    depth: Annotated[_Count | None, msgspec.Meta(description="So many generations each way.")] = None
    as_of: Instant | None = None
    format: Annotated[
        Literal["json", "svg", "mermaid", "dot", "graphml"] | None,
        msgspec.Meta(description="Default: as `Accept`."),
    ] = None
    unfold: Annotated[bool, msgspec.Meta(description="Draw each file of a wide split, up to 2,000.")] = False


class Summary(msgspec.Struct):
    """The backend of a summary."""

    backend: str = MARQUEZ


def _filter_fields() -> Iterator[tuple[str, Any, Any]]:
    for condition in CONDITIONS:
        meta = msgspec.Meta(description=condition.parameter_help)
        yield condition.parameter, Annotated[_KINDS[condition.kind], meta], None
        for name, what in zip(condition.deltafi, ("key", "value"), strict=False):
            if name != condition.parameter:
                said = f"The {what} of one `{condition.parameter}`."
                yield name, Annotated[str, msgspec.Meta(description=said)], None


_AT_MOST: Final = msgspec.Meta(max_length=_VALUES_MAX)
_Pair = Annotated[str, msgspec.Meta(pattern="^[^=]+=")]
_KINDS: Final[Mapping[ConditionKind, Any]] = {
    ConditionKind.TEXT: str,
    ConditionKind.TEXTS: Annotated[tuple[str, ...], _AT_MOST],
    ConditionKind.STATES: Annotated[tuple[FinalState, ...], _AT_MOST],
    ConditionKind.PAIRS: Annotated[tuple[_Pair, ...], _AT_MOST],
    ConditionKind.INSTANT: _Count,
    ConditionKind.UNTIL: _Count,
    ConditionKind.IS_ABSENT: bool,
}
"""The type of a condition's parameter, for its description; `read_conditions` reads the values."""

Filters: Final = msgspec.defstruct("Filters", list(_filter_fields()))
"""The conditions for records."""


class QueryParams(NamedTuple):
    """The records to return, how many to skip, whether an incomplete answer is enough, and what to count by.

    The query asks for one record more than the limit: it tells whether another page follows.
    """

    query: Query
    offset: int = 0
    limit: int = 0
    is_partial: bool = False
    by: tuple[Dimension, ...] = ()


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
    given = split_query(text, Filters, Page)
    page = convert_params(given, Page)
    limit = min(page.limit, LIMIT_MAX)
    query = Query(
        **_conditions(given, from_deltafi=from_deltafi),
        oldest_first=page.order == "oldest",
        after=page.after or None,
        limit=page.offset + limit + 1,
    )
    return QueryParams(query, page.offset, limit, is_partial=page.partial)


@_naming_parameters()
def filter_of(text: str, *, from_deltafi: bool = False) -> QueryParams:
    """Parse the query string of a query for statistics, as `query_params_of` does."""
    given = split_query(text, Filters, Sums)
    sums = convert_params(given, Sums)
    query = Query(**_conditions(given, from_deltafi=from_deltafi))
    return QueryParams(query, is_partial=sums.partial, by=read_dimensions(sums.by or None))


def next_page(text: str, cursor: str) -> str:
    """The query string of the page that goes on after a cursor."""
    kept = [pair for pair in parse_qsl(text, keep_blank_values=True) if pair[0] not in {"after", "offset"}]
    return urlencode([*kept, ("after", cursor)])


def trace_params_of(text: str, accept: str, media: Mapping[str, str]) -> Trace:
    """Parse the query string of a question for a journey; each of its values is given then.

    If only one of `up` and `down` is given, the other is its opposite: so ``up=true`` asks for ancestors
    only, as `waybill trace --up` does, and so does ``down=false``.

    Args:
        text: the query string.
        accept: the request's header, which counts where no `format` is given.
        media: by format, its media type; the first is the one for requests that ask for none.
    """
    trace = read_params(text, Trace)
    up = not trace.down if trace.up is None else trace.up
    down = not trace.up if trace.down is None else trace.down
    wanted: Any = trace.format or _accepted(accept, media)
    return msgspec.structs.replace(trace, up=up, down=down, format=wanted)


def _accepted(accept: str, media: Mapping[str, str]) -> str:
    """The first format that a request accepts."""
    formats = {kind.partition(";")[0]: name for name, kind in media.items()}
    asked = (one.partition(";")[0].strip().lower() for one in accept.split(","))
    default, *_ = media
    return next((formats[one] for one in asked if one in formats), default)


def _conditions(given: Given, *, from_deltafi: bool) -> dict[str, Any]:
    values: dict[str, Sequence[str]] = {
        one.field: given[one.parameter] for one in CONDITIONS if given.get(one.parameter)
    }
    conditions = read_conditions(values, _instant)
    for one in CONDITIONS:
        if one.kind is ConditionKind.PAIRS and (
            pair := _pair_of(given, one.deltafi, from_deltafi=from_deltafi)
        ):
            conditions[one.field] = {**conditions.get(one.field, {}), **pair}
    return conditions


def _instant(condition: Condition, text: str) -> int:
    try:
        at: int = msgspec.convert(text, _Count, strict=False)
    except msgspec.ValidationError:
        raise malformed(condition.parameter, f"is {text[:40]!r}; use a whole number of at least 0") from None
    return at + (condition.kind is ConditionKind.UNTIL)


def _pair_of(given: Given, names: Sequence[str], *, from_deltafi: bool) -> dict[str, str]:
    """The pair that DeltaFi's two parameters for a key and its value give, if both do.

    A value may be empty, except for DeltaFi.
    """
    missing = [name for name in names if not given.get(name)]
    if missing == list(names[1:]) and names[1] in given and not from_deltafi:
        return {given[names[0]][0]: ""}
    if len(missing) == 1 and not from_deltafi:
        raise malformed(missing[0], f"is missing; {' and '.join(names)} go together")
    return {} if missing else {given[names[0]][0]: given[names[1]][0]}
