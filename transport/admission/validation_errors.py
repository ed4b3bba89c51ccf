"""Validation errors: everything that is wrong with a refused body, not only the decoder's first error.

Admission decides; this module only explains the decision, so it may be slow. If it finds nothing, for example
because a key is given twice, admission's own reason is the only one reported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from waybill.facets import RunEvent
from waybill.facets.event import model_of, without_unreadable_facets
from waybill.facets.record import UNREADABLE, WIRE_RECORDS, with_plain_keys

from ..errors import AdmissionError
from .admission import (
    EVENT_FORM,
    INSTANTS,
    RECORDS_FORM,
    Form,
    Place,
    check_instant,
    error_of,
    nul_error,
    places_of_nul,
    without_indices,
)

ERRORS_MAX: Final = 100
"""The maximum number of errors reported for one body."""

EXPLAINED_BYTES_MAX: Final = 2**20
"""For a larger body only the first error is reported: finding all is slow and takes much memory."""


def event_errors(body: bytes, first: AdmissionError) -> list[AdmissionError]:
    """At most `ERRORS_MAX` errors of an event that `admit_event` refused, including `first`, its reason."""
    return _errors(body, first, lambda _: _errors_in_event(body))


def record_errors(body: bytes, first: AdmissionError) -> list[AdmissionError]:
    """Everything that is wrong with a JSON array of provenance records; see `event_errors`."""
    with contextlib.suppress(*UNREADABLE):
        body = with_plain_keys(body)
    return _errors(body, first, lambda value: _walk(value, WIRE_RECORDS, Place(), RECORDS_FORM))


def _errors(
    body: bytes, first: AdmissionError, look: Callable[[Any], Iterable[AdmissionError]]
) -> list[AdmissionError]:
    if len(body) > EXPLAINED_BYTES_MAX:
        return [first]
    try:
        value = msgspec.json.decode(body)
        texts = value if b"\\u0000" in body else None
        nuls = (nul_error(place) for place in places_of_nul(texts))
        found = list(islice(chain(look(value), nuls), ERRORS_MAX))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [first]
    places = {without_indices(error.where) for error in found}
    return found if without_indices(first.where) in places else [first, *found][:ERRORS_MAX]


def _errors_in_event(body: bytes) -> Iterator[AdmissionError]:
    value = msgspec.json.decode(without_unreadable_facets(body))
    model = model_of(value.get("schemaURL")) if isinstance(value, dict) else RunEvent
    yield from _walk(value, model, Place(), EVENT_FORM)
    for path in INSTANTS if model is RunEvent else INSTANTS[:1]:
        found = value
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        try:
            check_instant(found if isinstance(found, str) else None, ".".join(("$", *path)))
        except AdmissionError as error:
            yield error


def _walk(value: Any, model: Any, place: Place, form: Form) -> Iterator[AdmissionError]:  # noqa: ANN401 - JSON, types
    """The errors that a decoder of this type would find, at this place and everywhere below it."""
    try:
        _decoder(model).decode(msgspec.json.encode(value))
    except msgspec.ValidationError as error:
        message = str(error)
    else:
        return
    inner = (_walk(part, kind, where, form) for part, kind, where in _parts(value, model, place))
    # Lazy, because only some of many errors are reported.
    errors = chain(_missing(value, model, place, form), chain.from_iterable(inner))
    first = next(errors, None)
    yield error_of(message, form, str(place)) if first is None else first
    yield from errors


def _parts(value: Any, model: Any, place: Place) -> Iterator[tuple[Any, Any, Place]]:  # noqa: ANN401 - JSON, types
    """The members of a value that its type declares, each with its type and place."""
    kind = _kind(model)
    inside = get_args(kind)
    if isinstance(value, list) and get_origin(kind) in {tuple, list}:
        yield from ((value[at], inside[0], Place(f"[{at}]", place)) for at in _bad(value, inside[0]))
    elif isinstance(value, dict) and get_origin(kind) is dict:
        keys, values = list(value), list(value.values())
        yield from ((values[at], inside[1], Place(f"[{keys[at]}]", place)) for at in _bad(values, inside[1]))
    elif isinstance(value, dict):
        fields = _fields(kind)
        yield from (
            (one, fields[key].type, Place(f".{key}", place)) for key, one in value.items() if key in fields
        )


def _bad(values: Sequence[Any], model: Any, begin: int = 0) -> Iterator[int]:  # noqa: ANN401 - JSON, types
    """The indices of the values that are not of this type; valid ones are skipped many at a time."""
    try:
        _decoder(list[model]).decode(msgspec.json.encode(values))
    except msgspec.ValidationError:
        if len(values) == 1:
            yield begin
            return
        half = len(values) // 2
        yield from _bad(values[:half], model, begin)
        yield from _bad(values[half:], model, begin + half)


def _missing(value: Any, model: Any, place: Place, form: Form) -> Iterator[AdmissionError]:  # noqa: ANN401 - JSON, types
    if isinstance(value, dict):
        for name, field in _fields(_kind(model)).items():
            if field.required and name not in value:
                yield error_of(f"Object missing required field `{name}`", form, str(place))


@cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a type
    return msgspec.json.Decoder(model)


@cache
def _fields(kind: Any) -> Mapping[str, msgspec.structs.FieldInfo]:  # noqa: ANN401 - a type
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _kind(model: Any) -> Any:  # noqa: ANN401 - types
    """The type without None and without constraints; each of our fields has exactly one."""
    if get_origin(model) is Annotated:
        return _kind(get_args(model)[0])
    kinds: Sequence[Any] = [kind for kind in get_args(model) if kind is not NoneType]
    return _kind(kinds[0]) if NoneType in get_args(model) else model
