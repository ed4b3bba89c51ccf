"""Query parameters: a struct declares them, for the parser and for the OpenAPI description.

Each field is a parameter. Its type says which values it takes, a tuple that it may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from .exchange import Problem

NUMBER_MAX: Final = 10**15 - 1
"""The greatest number: beyond it, an instant in milliseconds could not be one of microseconds."""

Given = Mapping[str, Sequence[str]]
"""The values of each parameter."""

ParamsT = TypeVar("ParamsT", bound=msgspec.Struct)


def read_params(text: str, kind: type[ParamsT]) -> ParamsT:
    """The parameters of a query string.

    Raises:
        Problem: one is unknown, malformed, missing, or given too often; it names the parameter.
    """
    return convert_params(split_query(text, kind), kind)


def split_query(text: str, *kinds: type[msgspec.Struct]) -> Given:
    """The values in a query string, of the parameters that these structs declare.

    A parameter whose values are all empty has none, since an empty field of a form sets no condition.

    Raises:
        Problem: a parameter is unknown or given too often, or has a NUL character.
    """
    fields = {field.encode_name: field for kind in kinds for field in msgspec.structs.fields(kind)}
    given: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        detail = f"the query string cannot be read ({error}); percent-encode it as UTF-8"
        raise Problem(HTTPStatus.BAD_REQUEST, detail) from None
    for name, value in pairs:
        if name not in fields:
            raise malformed(name[:60], f"is unknown; the parameters are {', '.join(fields)}")
        if given.get(name) and not _is_repeatable(fields[name]):
            raise malformed(name, "appears twice; use it once")
        if "\0" in value:
            raise malformed(name, "contains a NUL character; remove it")
        given.setdefault(name, []).extend([value] * bool(value))
    return given


def convert_params(given: Given, kind: type[ParamsT]) -> ParamsT:
    """The parameters of a struct among the values that were given.

    Raises:
        Problem: one is malformed or missing; it names the parameter.
    """
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        texts = given.get(field.encode_name)
        if texts:
            value = texts if _is_repeatable(field) else texts[0]
            try:
                values[field.name] = msgspec.convert(value, field.type, strict=False)
            except msgspec.ValidationError as error:
                wanted = _wanted(field.type, str(error))
                raise malformed(field.encode_name, f"is {texts[0][:40]!r}; {wanted}") from None
        elif field.required:
            raise malformed(field.encode_name, "is missing")
    return kind(**values)


def malformed(name: str, what: str) -> Problem:
    """Refuse a query parameter."""
    return Problem(HTTPStatus.BAD_REQUEST, f"the parameter {name} {what}")


def _is_repeatable(field: msgspec.structs.FieldInfo) -> bool:
    return "items" in msgspec.json.schema(field.type)


def _choices_of(kind: Any) -> Sequence[str]:  # noqa: ANN401 - any annotation
    """The values of the `Literal` in a type, in their order."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return next(filter(None, map(_choices_of, get_args(kind))), ())


def _wanted(kind: Any, otherwise: str) -> str:  # noqa: ANN401 - any annotation
    """The values that a type allows, in words."""
    schema = msgspec.json.schema(kind)
    kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    if len(kinds) > 1:
        return otherwise
    if choices := _choices_of(kind):
        return f"use one of {', '.join(choices)}"
    match kinds[0].get("type"):
        case "boolean":
            return "use true or false"
        case "integer":
            most = f", and at most {kinds[0]['maximum']}" if "maximum" in kinds[0] else ""
            return f"use a whole number of at least {kinds[0].get('minimum', 0)}{most}"
        case _:
            return otherwise
