"""Admission: decides what is kept, and refuses the rest before it reaches the journal.

Admission is strict about what makes an event: its type, time and producer, the ids and names of its run, job
and datasets, its sizes and its depth. It is lenient about facets: one that cannot be read is kept as it was
sent, and not used. The exception is `waybill_deltaFile`, without which the record would be another file's.
Every admitted event folds without an error.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from waybill.facets import RunEvent, decode_event, parse_instant_us
from waybill.facets.record import decode_plain, decode_sent, with_plain_keys

from ..errors import AdmissionError, Reason
from .bounds import DEFAULT_BOUNDS, check_event_bounds, check_record_bounds
from .repeated_keys import repeated_in_event, repeated_in_records

if TYPE_CHECKING:
    from waybill.facets import Event
    from waybill.facets.record import SentRecord

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

# The facets that no record is made of; what is read of the others leaves out texts with a NUL.
_OF_OTHERS: Final = re.compile(
    r"\$\.(?:(?:run|job|dataset)\.facets(?:$|\.(?!waybill_|parent\b))|(?:in|out)puts\[\d+\]\.(?:facets|(?:in|out)putFacets))"
)

_PLACE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<where>.*)`)?", re.DOTALL)
_INDEX: Final = re.compile(r"\[[^]]*\]")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>.*)`")
_WHAT_CHARS_MAX: Final = 200


class Form(NamedTuple):
    """What to send instead, when the whole body is wrong and when only a part of it is."""

    whole: str
    part: str


INSTANTS: Final = (
    ("eventTime",),
    ("run", "facets", "waybill_deltaFile", "created"),
    ("run", "facets", "waybill_deltaFile", "completed"),
)
"""The paths of a run event's instants, which must be readable. Other events have only the first."""

EVENT_FORM: Final = Form(
    "send one OpenLineage event as UTF-8 JSON", "give it as OpenLineage 2-0-2 specifies it"
)
RECORDS_FORM: Final = Form(
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
    event = _decode(body, _event, EVENT_FORM)
    _check_repeated(functools.partial(repeated_in_event, body))
    if bounds is not None and len(body) > bounds.free_bytes:
        check_event_bounds(event, bounds)
    check_instant(event.eventTime, "$.eventTime")
    if isinstance(event, RunEvent) and event.run.facets is not None:
        facet = event.run.facets.delta_file
        if facet is not None:
            check_instant(facet.created, "$.run.facets.waybill_deltaFile.created")
            check_instant(facet.completed, "$.run.facets.waybill_deltaFile.completed")
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
    plain, records = _decode(body, _plain_records, RECORDS_FORM)
    _check_repeated(functools.partial(repeated_in_records, body, records))
    if len(body) > bounds.free_bytes:
        check_record_bounds(plain, records, bounds)
    return plain, len(records)


def _decode(body: bytes, decode: Callable[[bytes], _T], form: Form) -> _T:
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
        raise error_of(str(error), form) from None
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


def _check_repeated(find_repeated: Callable[[], str | None]) -> None:
    try:
        key = find_repeated()
    except ValueError:  # in a part that the event's type skips
        return
    if key is not None:
        what = f"an object has the key {key[:_WHAT_CHARS_MAX]!r} twice"
        raise AdmissionError("$", what, "give each key of an object once", Reason.MALFORMED)


def _check_nul(body: bytes) -> None:
    # Most bodies have no escapes, and searching for a single byte is four times as fast.
    if b"\\" in body and b"\\u0000" in body and _NUL.search(body) is not None:
        try:
            place = next(places_of_nul(msgspec.json.decode(body)), None)
        except (msgspec.DecodeError, RecursionError):  # a part that the event's type skips
            place = Place()
        if place is not None:
            raise nul_error(place)


def _event(body: bytes) -> Event:
    event = decode_event(body)
    if _is_too_deep(body):
        raise depth_error()
    return event


def _plain_records(body: bytes) -> tuple[bytes, Sequence[SentRecord]]:
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


def error_of(message: str, form: Form, at: str = "$") -> AdmissionError:
    """Turn the message of a `msgspec.ValidationError` about the value at a path into an error."""
    place = _PLACE.fullmatch(message)
    what, where = (message, "$") if place is None else (place["what"], place["where"] or "$")
    where = at + where[1:]
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


def check_instant(text: str | None, where: str) -> None:
    """Check that an instant of an event, if there is one, is readable and in range."""
    if text is None:
        return
    try:
        parse_instant_us(text)
    except ValueError as error:
        raise AdmissionError(where, str(error), _WAYS_OUT[where.rpartition(".")[2]]) from None


def nul_error(place: Place) -> AdmissionError:
    """The error for a string that contains a NUL character."""
    return AdmissionError(
        str(place), "a string contains a NUL character, which backends cannot store", "remove it"
    )


class Place(NamedTuple):
    """A place in a JSON value.

    The path is joined only when it is reported: keys may be long, and one key may hold many values.
    """

    part: str = "$"
    above: Place | None = None

    def __str__(self) -> str:
        parts, place = [], self
        while place.above is not None:
            parts.append(place.part)
            place = place.above
        return "".join([place.part, *reversed(parts)])


def places_of_nul(value: Any) -> Iterator[Place]:  # noqa: ANN401 - any JSON value
    """The places of strings that contain a NUL character, and of objects with such a key, outside of facets.

    In our own facets there may be none either.
    """
    return (place for place in _places_of_nul(value, Place()) if _OF_OTHERS.match(str(place)) is None)


def _places_of_nul(value: Any, place: Place) -> Iterator[Place]:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        if "\0" in value:
            yield place
    elif isinstance(value, dict):
        if any("\0" in key for key in value):
            yield place
        for key, item in value.items():
            yield from _places_of_nul(item, Place(f".{key}", place))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _places_of_nul(item, Place(f"[{at}]", place))
