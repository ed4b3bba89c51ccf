"""Faults: everything that is wrong with something refused, not only what the decoder met first.

Admission decides; this only explains what it has decided, so it may be slow. Where it finds nothing, because
a key is given twice, say, the reason that admission gave is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    fault_of,
    nul_fault,
    places_of_nul,
    without_indices,
)
from waybill.transport.errors import AdmissionError

FAULTS_MAX: Final = 100
"""How many faults of one body are told."""

EXPLAINED_BYTES_MAX: Final = 2**20
"""Of a larger body only the first fault is told: to look for others takes many times its memory, and long."""


def event_errors(body: bytes, first: AdmissionError) -> list[AdmissionError]:
    """Everything that is wrong with an OpenLineage event.

    Args:
        body: its bytes, which `admit_event` has refused.
        first: why it has.

    Returns:
        The faults by their place in the event, at most `FAULTS_MAX`; `first` if there is no other.
    """
    value = _decoded(body)
    if value is _NOTHING:
        return [first]
    model = model_of(value.get("schemaURL")) if isinstance(value, dict) else RunEvent
    faults = chain(
        _walk(value, model, "$", EVENT_FORM),
        _instants(value, model),
        (nul_fault(where) for where in places_of_nul(value, "$")),
    )
    return _told(faults, first)


def record_errors(body: bytes, first: AdmissionError) -> list[AdmissionError]:
    """Everything that is wrong with a JSON array of provenance records; else as `event_errors`."""
    value = _decoded(body)
    if value is _NOTHING:
        return [first]
    faults = chain(
        _walk(value, WIRE_RECORDS, "$", RECORDS_FORM),
        (nul_fault(where) for where in places_of_nul(value, "$")),
    )
    return _told(faults, first)


_NOTHING: Final = object()


def _decoded(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    if len(body) > EXPLAINED_BYTES_MAX:
        return _NOTHING
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _NOTHING


def _told(faults: Iterator[AdmissionError], first: AdmissionError) -> list[AdmissionError]:
    try:
        told = list(islice(faults, FAULTS_MAX))
    except RecursionError:
        return [first]
    places = {without_indices(fault.where) for fault in told}
    return told if without_indices(first.where) in places else [first, *told][:FAULTS_MAX]


def _walk(value: Any, model: Any, path: str, form: Form) -> Iterator[AdmissionError]:  # noqa: ANN401 - JSON, types
    """What a decoder of this type would find, at every place below this one."""
    message = _message_of(value, model)
    if message is None:
        return
    inner = (_walk(part, kind, where, form) for part, kind, where in _parts(value, model, path))
    # One by one, for of many only some are told.
    faults = chain(_missing(value, model, path, form), chain.from_iterable(inner))
    first = next(faults, None)
    yield fault_of(message, form, path) if first is None else first
    yield from faults


def _message_of(value: Any, model: Any) -> str | None:  # noqa: ANN401 - JSON, types
    """What a decoder of this type says of a value; None when it takes it."""
    try:
        _decoder(model).decode(msgspec.json.encode(value))
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _parts(value: Any, model: Any, path: str) -> Iterator[tuple[Any, Any, str]]:  # noqa: ANN401 - JSON, types
    """The members of a value that its type says something of: each with its type and path."""
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
                yield fault_of(f"Object missing required field `{name}`", form, path)


def _instants(value: Any, model: type) -> Iterator[AdmissionError]:  # noqa: ANN401 - JSON
    for path in INSTANTS if model is RunEvent else INSTANTS[:1]:
        found = value
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        try:
            check_instant(found if isinstance(found, str) else None, ".".join(("$", *path)))
        except AdmissionError as error:
            yield error


@cache
def _decoder(model: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401 - a type
    return msgspec.json.Decoder(model)


@cache
def _fields(kind: Any) -> Mapping[str, msgspec.structs.FieldInfo]:  # noqa: ANN401 - a type
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {}
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _kind(model: Any) -> Any:  # noqa: ANN401 - types
    """The type that is neither None nor a constraint: each of ours has one."""
    if get_origin(model) is Annotated:
        return _kind(get_args(model)[0])
    kinds: Sequence[Any] = [kind for kind in get_args(model) if kind is not NoneType]
    return _kind(kinds[0]) if NoneType in get_args(model) else model
