"""The questions as tools for a language model: names, JSON Schemas of the arguments, and answers as JSON.

They only read. The arguments are those of the same question over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec

from waybill.exporter import Query
from waybill.exporter.query import CONDITIONS, ConditionKind, InvalidQueryError, read_conditions
from waybill.facets.arrow import from_table

from .graph import OfDependencies, OfImpact, OfOrigins, OfSearch
from .index import as_plain

if TYPE_CHECKING:
    from waybill.exporter.query import Condition

    from .answers import Answers
    from .graph import Question

RECORDS_MAX: Final = 1_000
"""The maximum of `limit`."""

_RECORDS: Final = 100

Arguments = Mapping[str, Any]
"""The arguments of a call, as JSON values."""


class Tool(NamedTuple):
    """One question.

    Attributes:
        name: its name.
        description: what it answers, for the model that chooses.
        schema: the JSON Schema of its arguments.
        ask: gives the answer, which msgspec can encode. It raises what `Lineage` does.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    ask: Callable[[Answers, Arguments], object]


class _Trace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far to follow a file."""

    did: Annotated[str, msgspec.Meta(min_length=1, description="The file.")]
    up: Annotated[bool, msgspec.Meta(description="Follow the files that it came from.")] = True
    down: Annotated[bool, msgspec.Meta(description="Follow the files that came from it.")] = True
    depth: Annotated[int | None, msgspec.Meta(description="So many generations each way.")] = 3


def list_tools() -> list[Tool]:
    """Every tool."""
    return [
        Tool(
            "find",
            "Find files by where they came from, what was done to them and where they ended: one record for "
            "each way that a file left, newest first.",
            _schema_of_find(),
            _find,
        ),
        Tool(
            "trace",
            "Show the journey of a file: all files that it came from and all that came from it.",
            _schema_of(_Trace),
            _trace,
        ),
        _tool_of("lineage", OfDependencies),
        _tool_of("impact", OfImpact),
        _tool_of("origins", OfOrigins),
        _tool_of("search", OfSearch),
    ]


def _tool_of(name: str, kind: type[Question[Any]]) -> Tool:
    def ask(answers: Answers, arguments: Arguments) -> object:
        return answers.answer(_read(arguments, kind))

    return Tool(name, f"{kind.summary}.", _schema_of(kind), ask)


def _trace(answers: Answers, arguments: Arguments) -> object:
    asked = _read(arguments, _Trace)
    return answers.trace(asked.did, up=asked.up, down=asked.down, depth=asked.depth).told()


def _find(answers: Answers, arguments: Arguments) -> object:
    by_parameter = {one.parameter: one for one in CONDITIONS}
    if unknown := arguments.keys() - by_parameter.keys() - {"limit"}:
        raise InvalidQueryError(
            min(unknown),
            str(arguments[min(unknown)])[:40],
            f"is asked for; the conditions are {', '.join(by_parameter)}",
        )
    given = {by_parameter[name].field: _texts(value) for name, value in arguments.items() if name != "limit"}
    limit = arguments.get("limit", _RECORDS)
    if not (isinstance(limit, int) and 0 < limit <= RECORDS_MAX):
        raise InvalidQueryError("limit", str(limit)[:40], f"is not a number from 1 to {RECORDS_MAX}")
    query = Query(**read_conditions(given, _read_ms), limit=limit)
    found = [record for table in answers.tables(query) for record in from_table(table)]
    runs = answers.job_runs(found, query)
    return as_plain(found, runs)


def _texts(value: object) -> Sequence[str]:
    """The texts of a condition, as its HTTP parameter has them."""
    values = value if isinstance(value, list) else [value]
    return [str(one).lower() if isinstance(one, bool) else str(one) for one in values]


def _read_ms(condition: Condition, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len("999999999999999")):
        raise InvalidQueryError(condition.field, text[:40], "is not epoch milliseconds")
    return int(text) + (condition.kind is ConditionKind.UNTIL)


def _schema_of_find() -> Mapping[str, Any]:
    properties: dict[str, Any] = {}
    for condition in CONDITIONS:
        kind: dict[str, Any] = {"type": _JSON_TYPES.get(condition.kind, "string")}
        if condition.is_repeatable:
            kind = {"type": "array", "items": kind}
        properties[condition.parameter] = kind | {"description": condition.parameter_help}
    limit = {"type": "integer", "minimum": 1, "maximum": RECORDS_MAX, "default": _RECORDS}
    return {"type": "object", "properties": properties | {"limit": limit}, "additionalProperties": False}


def _schema_of(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    _, components = msgspec.json.schema_components([kind])
    schema = components[kind.__name__]
    return {
        "type": "object",
        "properties": schema["properties"],
        "required": schema["required"],
        "additionalProperties": False,
    }


_T = Any


def _read(arguments: Arguments, kind: type[_T]) -> _T:
    names = {field.name for field in msgspec.structs.fields(kind)}
    if unknown := arguments.keys() - names:
        raise InvalidQueryError(
            min(unknown), str(arguments[min(unknown)])[:40], "is no argument of this tool"
        )
    try:
        return msgspec.convert(dict(arguments), kind)
    except msgspec.ValidationError as error:
        raise InvalidQueryError("arguments", str(dict(arguments))[:80], f"cannot be used: {error}") from None


_JSON_TYPES: Final = {
    ConditionKind.INSTANT: "integer",
    ConditionKind.UNTIL: "integer",
    ConditionKind.IS_ABSENT: "boolean",
}
