"""Validation errors: everything that is wrong with a refused body, not only what the decoder met first.

Admission decides; this only explains its decision, so it may be slow. If it finds nothing, for example
because a key is given twice, the reason that admission gave is the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from waybill.facets import RunEvent
from waybill.facets.event import model_of
from waybill.facets.record import WIRE_RECORDS
from waybill.transport.admission.admission import (
    EVENT_FORM,
    INSTANTS,
    RECORDS_FORM,
    Form,
    check_instant,
    error_of,
    nul_error,
    places_of_nul,
    without_indices,
)
from waybill.transport.errors import AdmissionError

ERRORS_MAX: Final = 100
"""How many errors of one body are reported."""

EXPLAINED_BYTES_MAX: Final = 2**20
"""Of a larger body only the first error is reported: finding all takes long, and many times its memory."""


def event_errors(body: bytes, first: AdmissionError) -> list[AdmissionError]:
    """At most `ERRORS_MAX` errors of an event that `admit_event` refused, among them `first`, its reason."""
    return _errors(body, first, _errors_in_event)


def record_errors(body: bytes, first: AdmissionError) -> list[AdmissionError]:
    """Everything that is wrong with a JSON array of provenance records; see `event_errors`."""
    return _errors(body, first, lambda value: _walk(value, WIRE_RECORDS, "$", RECORDS_FORM))


def _errors(
    body: bytes, first: AdmissionError, look: Callable[[Any], Iterable[AdmissionError]]
) -> list[AdmissionError]:
    if len(body) > EXPLAINED_BYTES_MAX:
        return [first]
    try:
        value = msgspec.json.decode(body)
        nuls = (nul_error(where) for where in places_of_nul(value, "$"))
        found = list(islice(chain(look(value), nuls), ERRORS_MAX))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [first]
    places = {without_indices(error.where) for error in found}
    return found if without_indices(first.where) in places else [first, *found][:ERRORS_MAX]


def _errors_in_event(value: Any) -> Iterator[AdmissionError]:  # noqa: ANN401 - any JSON value
    model = model_of(value.get("schemaURL")) if isinstance(value, dict) else RunEvent
    yield from _walk(value, model, "$", EVENT_FORM)
    for path in INSTANTS if model is RunEvent else INSTANTS[:1]:
        found = value
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        try:
            check_instant(found if isinstance(found, str) else None, ".".join(("$", *path)))
        except AdmissionError as error:
            yield error


def _walk(value: Any, model: Any, path: str, form: Form) -> Iterator[AdmissionError]:  # noqa: ANN401 - JSON, types
    """What a decoder of this type would find, at this place and everywhere below it."""
    try:
        _decoder(model).decode(msgspec.json.encode(value))
    except msgspec.ValidationError as error:
        message = str(error)
    else:
        return
    inner = (_walk(part, kind, where, form) for part, kind, where in _parts(value, model, path))
    # Lazily, because only some of many are reported.
    errors = chain(_missing(value, model, path, form), chain.from_iterable(inner))
    first = next(errors, None)
    yield error_of(message, form, path) if first is None else first
    yield from errors


def _parts(value: Any, model: Any, path: str) -> Iterator[tuple[Any, Any, str]]:  # noqa: ANN401 - JSON, types
    """The members of a value that its type describes, each with its own type and path."""
    kind = _kind(model)
    inside = get_args(kind)
    if isinstance(value, list) and get_origin(kind) in {tuple, list}:
        yield from ((one, inside[0], f"{path}[{at}]") for at, one in enumerate(value))
    elif isinstance(value, dict) and get_origin(kind) is dict:
        yield from ((one, inside[1], f"{path}[{key}]") for key, one in value.items())
    elif isinstance(value, dict):
        fields = _fields(kind)
        yield from ((one, fields[key].type, f"{path}.{key}") for key, one in value.items() if key in fields)


def _missing(value: Any, model: Any, path: str, form: Form) -> Iterator[AdmissionError]:  # noqa: ANN401 - JSON, types
    if isinstance(value, dict):
        for name, field in _fields(_kind(model)).items():
            if field.required and name not in value:
                yield error_of(f"Object missing required field `{name}`", form, path)


@cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a type
    return msgspec.json.Decoder(model)


@cache
def _fields(kind: Any) -> Mapping[str, msgspec.structs.FieldInfo]:  # noqa: ANN401 - a type
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _kind(model: Any) -> Any:  # noqa: ANN401 - types
    """The type without None and without constraints; each of ours is exactly one."""
    if get_origin(model) is Annotated:
        return _kind(get_args(model)[0])
    kinds: Sequence[Any] = [kind for kind in get_args(model) if kind is not NoneType]
    return _kind(kinds[0]) if NoneType in get_args(model) else model
