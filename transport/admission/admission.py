"""Admission: decides what is kept, and refuses the rest before it reaches the journal.

Admission is strict about what makes an event: its type, time and producer, the ids and names of its run, job
and datasets, its sizes and its depth. It is lenient about facets: one that cannot be read is kept as it was
sent, and not used. The exception is `waybill_deltaFile`, without which the record would be another file's.
Every admitted event folds without an error.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from waybill.facets import RunEvent, decode_event, parse_instant_us
from waybill.facets.record import decode_plain, decode_sent, with_plain_keys

from ..errors import AdmissionError, Reason
from .bounds import DEFAULT_BOUNDS, check_event_bounds, check_record_bounds
from .repeated_keys import FACETS, repeated_in_event, repeated_in_records

if TYPE_CHECKING:
    from waybill.facets import Event
    from waybill.facets.record import RecordFields

    from .bounds import Bounds

MAX_BODY_BYTES: Final = 64 << 20
"""The largest body admitted, in bytes."""

DEPTH_MAX: Final = 200
"""The maximum nesting depth of arrays and objects. Readers with little stack left drop anything deeper."""

# Turns all brackets into square ones, and drops everything else except the quotes around strings.
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))

# An escaped NUL, but not the text `\u0000` after an escaped backslash.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

_PLACE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<where>.*)`)?", re.DOTALL)
_INDEX: Final = re.compile(r"\[[^]]*\]")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>.*)`")
_WHAT_CHARS_MAX: Final = 200


class _Form(NamedTuple):
    """What to send instead, when the whole body is wrong and when only a part of it is."""

    whole: str
    part: str


_EVENT_FORM: Final = _Form(
    "send one OpenLineage event as UTF-8 JSON", "give it as OpenLineage 2-0-2 specifies it"
)
_RECORDS_FORM: Final = _Form(
    "send a JSON array of provenance records in UTF-8",
    "give it in the form that DeltaFi's analytics collector accepts",
)

_WAYS_OUT: Final = {
    "eventTime": "give the time of the event in ISO 8601, for example 2026-01-31T12:00:00.000Z",
    "eventType": "give one of START, RUNNING, COMPLETE, ABORT, FAIL and OTHER",
    "producer": "give a URI that names the program that made the event",
    "run": "give the run, including its runId",
    "runId": "give the run's id, preferably a UUID",
    "job": "give the job, including its namespace and name",
    "namespace": "give the namespace as a string",
    "name": "give the name as a string",
    "did": "give the file's identity, preferably a UUID",
    "finalState": "give one of COMPLETE, ERROR, FILTERED, CANCELLED and SPLIT",
    "created": "give the time the file began: epoch milliseconds in records, ISO 8601 in facets",
    "completed": "give the time the path ended: epoch milliseconds in records, ISO 8601 in facets",
    "annotations": "give annotations as an object of strings",
}

_T = TypeVar("_T")


def admit_event(body: bytes, bounds: Bounds | None = DEFAULT_BOUNDS) -> Event:
    """Decode an OpenLineage event if it may be kept; without `bounds` its size is not checked.

    Raises:
        AdmissionError: the event is refused; names the place, the reason, and what the sender can do.
    """
    event = _decode(body, _event, _EVENT_FORM)
    _check_repeated(repeated_in_event, body)
    if bounds is not None and len(body) > bounds.free_event_bytes:
        check_event_bounds(event, bounds)
    _check_instant(event.eventTime, "$.eventTime")
    if isinstance(event, RunEvent) and event.run.facets is not None:
        facet = event.run.facets.delta_file
        if facet is not None:
            _check_instant(facet.created, "$.run.facets.waybill_deltaFile.created")
            _check_instant(facet.completed, "$.run.facets.waybill_deltaFile.completed")
    return event


def check_records(body: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> tuple[bytes, int]:
    """Count the records of a body, if all of them may be kept.

    Returns:
        The bytes to keep, and the number of records. The bytes are the body itself unless a key's case
        differs.

    Raises:
        AdmissionError: a record is refused; names the record and the place, the reason, and what the sender
        can do.
    """
    plain, records = _decode(body, _plain_records, _RECORDS_FORM)
    _check_repeated(repeated_in_records, body, records)
    if len(body) > bounds.free_bytes:
        check_record_bounds(plain, records, bounds)
    return plain, len(records)


def _decode(body: bytes, decode: Callable[[bytes], _T], form: _Form) -> _T:
    if len(body) > MAX_BODY_BYTES:
        what = f"the body has {len(body):,} bytes"
        way_out = f"send at most {MAX_BODY_BYTES:,} bytes per request"
        raise AdmissionError("$", what, way_out, Reason.TOO_LARGE)
    try:
        # The decoder does not check what it skips, so invalid UTF-8 could hide there.
        if not body.isascii():
            body.decode()
        value = decode(body)
    except msgspec.ValidationError as error:
        raise _error_of(str(error), form) from None
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        what = f"the body is not valid JSON: {reason}"
        raise AdmissionError("$", what, form.whole, Reason.MALFORMED) from None
    except UnicodeDecodeError as error:
        what = f"the body is not valid UTF-8 at byte {error.start}"
        raise AdmissionError("$", what, form.whole, Reason.MALFORMED) from None
    except RecursionError:
        raise depth_error() from None
    _check_nul(body)
    return value


def _check_repeated(find_repeated: Callable[..., str | None], *read: object) -> None:
    try:
        key = find_repeated(*read)
    except ValueError:  # in a part that the event's type skips
        return
    if key is not None:
        what = f"an object has the key {key[:_WHAT_CHARS_MAX]!r} twice"
        raise AdmissionError("$", what, "give each key of an object once", Reason.MALFORMED)


def _check_nul(body: bytes) -> None:
    # Most bodies have no escapes, and searching for a single byte is four times as fast.
    if b"\\" in body and b"\\u0000" in body and _NUL.search(body) is not None:
        try:
            value = msgspec.json.decode(body)
            read = _without_facets_of_others(value) if isinstance(value, dict) else value
            place = next(_places_of_nul(read), None)
        except (msgspec.DecodeError, RecursionError):  # a part that the event's type skips
            place = ""
        if place is not None:
            what = "a string contains a NUL character, which backends cannot store"
            raise AdmissionError(f"${place}", what, "remove it")


def _event(body: bytes) -> Event:
    event = decode_event(body)
    if _is_too_deep(body):
        raise depth_error()
    return event


def _plain_records(body: bytes) -> tuple[bytes, Sequence[RecordFields]]:
    with contextlib.suppress(msgspec.ValidationError):
        return body, decode_plain(body)  # no unknown fields, so nothing is nested
    plain = with_plain_keys(body)
    records = decode_sent(plain)
    if _is_too_deep(plain):
        raise depth_error()
    return plain, records


def _is_too_deep(body: bytes) -> bool:
    """Whether a JSON text is nested deeper than `DEPTH_MAX`."""
    brackets = body.translate(_SQUARE, _NO_BRACKETS)
    if brackets.count(b"[") <= DEPTH_MAX:
        return False
    if b"\\" in body:
        unescaped = body.replace(rb"\\", b"").replace(rb"\"", b"")
        brackets = unescaped.translate(_SQUARE, _NO_BRACKETS)
    brackets = brackets.replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    # Each pass removes the innermost level.
    for _ in range(DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def depth_error() -> AdmissionError:
    """The error for a body that is nested deeper than `DEPTH_MAX`."""
    what = f"it is nested too deeply, more than {DEPTH_MAX} levels"
    return AdmissionError("$", what, "send flatter facets", Reason.TOO_DEEP)


def _error_of(message: str, form: _Form) -> AdmissionError:
    """Turn the message of a `msgspec.ValidationError` into an error."""
    place = _PLACE.fullmatch(message)
    what, where = (message, "$") if place is None else (place["what"], place["where"] or "$")
    missing = _MISSING.fullmatch(what)
    if missing is not None:
        what, where = "is missing", f"{where}.{missing['field']}"
    else:
        what = what[:1].lower() + what[1:]
    if where == "$":
        return AdmissionError(where, what, form.whole)
    field = without_indices(where).rpartition(".")[2]
    # The decoder quotes unknown values in full, however long they are.
    return AdmissionError(where, what[:_WHAT_CHARS_MAX], _WAYS_OUT.get(field, form.part))


def without_indices(where: str) -> str:
    """Remove list indices and dict keys from a path."""
    return _INDEX.sub("", where)


def _check_instant(text: str | None, where: str) -> None:
    """Check that an instant of an event, if there is one, is readable and in range."""
    if text is None:
        return
    try:
        parse_instant_us(text)
    except ValueError as error:
        raise AdmissionError(where, str(error), _WAYS_OUT[where.rpartition(".")[2]]) from None


def _without_facets_of_others(event: dict[str, Any]) -> dict[str, Any]:
    """An event without the facets that no record is made of: what is read of these leaves out NULs."""
    read = dict(event)
    for part in ("run", "job", "dataset"):
        match event.get(part):
            case {"facets": dict(facets)}:
                own = {
                    name: facet
                    for name, facet in facets.items()
                    if "\0" not in name and (name == "parent" or name.startswith("waybill_"))
                }
                read[part] = {**event[part], "facets": own}
    for side in ("inputs", "outputs"):
        datasets = event.get(side)
        if isinstance(datasets, list) and all(isinstance(one, dict) for one in datasets):
            read[side] = [{key: value for key, value in one.items() if key not in FACETS} for one in datasets]
    return read


def _places_of_nul(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON value
    """The places below a value of strings that contain a NUL character, and of objects with such a key."""
    if isinstance(value, str):
        if "\0" in value:
            yield ""
    elif isinstance(value, dict):
        if any("\0" in key for key in value):
            yield ""
        for key, item in value.items():
            # Joined only where there is one: keys may be long, and one key may hold many values.
            yield from (f".{key}{below}" for below in _places_of_nul(item))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from (f"[{at}]{below}" for below in _places_of_nul(item))
