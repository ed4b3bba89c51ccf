"""Admission: what is kept, and what is refused before it reaches the journal.

An event is refused if a backend would refuse it for good, or if no record could be made of it. This is as
strict as Marquez, and no stricter: unknown keys, unknown facets, unknown event types and run ids that are no
UUID pass. Whatever is admitted folds without an error.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from waybill.facets import RunEvent, decode_event, parse_instant_us
from waybill.facets.record import decode_plain, decode_sent, with_plain_keys
from waybill.transport.admission.bounds import DEFAULT_BOUNDS, check_event_bounds, check_record_bounds
from waybill.transport.errors import AdmissionError, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from waybill.facets import Event
    from waybill.facets.record import SentRecord
    from waybill.transport.admission.bounds import Bounds

MAX_BODY_BYTES: Final = 64 << 20
"""The largest body admitted, in bytes."""

DEPTH_MAX: Final = 200
"""How deep arrays and objects may be nested: readers with little of the stack left drop what is deeper."""

# All brackets as square ones, everything else but the quotes that texts are between is left out.
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))

# An escaped NUL, and not the text `\u0000` behind an escaped backslash.
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

_PLACE: Final = re.compile(r"(?P<what>.*?)(?: - at `(?P<where>.*)`)?", re.DOTALL)
_INDEX: Final = re.compile(r"\[[^]]*\]")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>.*)`")
_WHAT_CHARS_MAX: Final = 200


class Form(NamedTuple):
    """What to send instead: if the whole body is at fault, and if a part of it is."""

    whole: str
    part: str


INSTANTS: Final = (
    ("eventTime",),
    ("run", "facets", "waybill_deltaFile", "created"),
    ("run", "facets", "waybill_deltaFile", "completed"),
)
"""Where a run event holds instants that must be readable; other events have the first only."""

EVENT_FORM: Final = Form("send one OpenLineage event as UTF-8 JSON", "give it as OpenLineage 2-0-2 has it")
RECORDS_FORM: Final = Form(
    "send a JSON array of provenance records in UTF-8", "give it as DeltaFi's analytics collector takes it"
)

_WAYS_OUT: Final = {
    "eventTime": "give the instant it happened in ISO 8601, for example 2026-01-31T12:00:00.000Z",
    "eventType": "give one of START, RUNNING, COMPLETE, ABORT, FAIL and OTHER",
    "producer": "give a URI that names what made the event",
    "run": "give the run, with its runId",
    "runId": "give the run's id, best a UUID",
    "job": "give the job, with its namespace and name",
    "namespace": "give the namespace as text",
    "name": "give the name as text",
    "did": "give the file's identity, best a UUID",
    "finalState": "give one of COMPLETE, ERROR, FILTERED, CANCELLED and SPLIT",
    "created": "give the instant the file began, in records as epoch milliseconds, in facets in ISO 8601",
    "completed": "give the instant the path ended, in records as epoch milliseconds, in facets in ISO 8601",
    "annotations": "give annotations as texts by key",
}

_T = TypeVar("_T")


def admit_event(body: bytes, bounds: Bounds | None = DEFAULT_BOUNDS) -> Event:
    """Decode an OpenLineage event if it may be kept; without `bounds` it is as large as the body has it.

    Raises:
        AdmissionError: it may not; where, why, and what the sender can do.
    """
    event = _decode(body, _event, EVENT_FORM)
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
    """Count the records of a body if all of them may be kept.

    Returns:
        What is to be kept, which is the body itself unless a key has another case; and the number of records.

    Raises:
        AdmissionError: one of them may not; which and where, why, and what the sender can do.
    """
    plain, records = _decode(body, _plain_records, RECORDS_FORM)
    if len(body) > bounds.free_bytes:
        check_record_bounds(plain, records, bounds)
    return plain, len(records)


def _decode(body: bytes, decode: Callable[[bytes], _T], form: Form) -> _T:
    if len(body) > MAX_BODY_BYTES:
        what = f"the body has {len(body):,} bytes"
        way_out = f"send at most {MAX_BODY_BYTES:,} bytes at once"
        raise AdmissionError("$", what, way_out, Reason.TOO_LARGE)
    try:
        # The decoder does not check what it skips, so a text that is no UTF-8 could hide there.
        if not body.isascii():
            body.decode()
        value = decode(body)
    except msgspec.ValidationError as error:
        raise error_of(str(error), form) from None
    except msgspec.DecodeError as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        what = f"the body is no JSON: {reason}"
        raise AdmissionError("$", what, form.whole, Reason.MALFORMED) from None
    except UnicodeDecodeError as error:
        what = f"the body is no UTF-8 at byte {error.start}"
        raise AdmissionError("$", what, form.whole, Reason.MALFORMED) from None
    except RecursionError:
        raise depth_error() from None
    # Most bodies have no escape at all, and a single byte is found four times as fast.
    if b"\\" in body and b"\\u0000" in body and _NUL.search(body) is not None:
        try:
            place = next(places_of_nul(msgspec.json.decode(body), Place()), Place())
        except (msgspec.DecodeError, RecursionError):  # a part that the event's type skips
            place = Place()
        raise nul_error(place)
    return value


def _event(body: bytes) -> Event:
    event = decode_event(body)
    if _is_too_deep(body):
        raise depth_error()
    return event


def _plain_records(body: bytes) -> tuple[bytes, Sequence[SentRecord]]:
    with contextlib.suppress(msgspec.ValidationError):
        return body, decode_plain(body)  # has no unknown field, so nothing in it is nested
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
    # Each turn takes the innermost level away.
    for _ in range(DEPTH_MAX):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def depth_error() -> AdmissionError:
    """The error for a body that is nested deeper than `DEPTH_MAX`."""
    what = f"it is nested too deeply, in more than {DEPTH_MAX} levels"
    return AdmissionError("$", what, "send flatter facets", Reason.TOO_DEEP)


def error_of(message: str, form: Form, at: str = "$") -> AdmissionError:
    """The error for the message of a `msgspec.ValidationError` about what stands at a path."""
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
    # The decoder quotes a value that it does not know, however long it is.
    return AdmissionError(where, what[:_WHAT_CHARS_MAX], _WAYS_OUT.get(field, form.part))


def without_indices(where: str) -> str:
    """A path without the indices of lists and the keys of dicts."""
    return _INDEX.sub("", where)


def check_instant(text: str | None, where: str) -> None:
    """Check an instant of an event, if there is one: it can be read, and is in range."""
    if text is None:
        return
    try:
        parse_instant_us(text)
    except ValueError as error:
        raise AdmissionError(where, str(error), _WAYS_OUT[where.rpartition(".")[2]]) from None


def nul_error(place: Place) -> AdmissionError:
    """The error for a text that holds a NUL character."""
    return AdmissionError(
        str(place), "a text holds a NUL character, which backends cannot store", "leave it out"
    )


class Place(NamedTuple):
    """A place in a JSON value.

    Its path is put together only when it is told: keys may be long, and many values may be below one.
    """

    part: str = "$"
    above: Place | None = None

    def __str__(self) -> str:
        parts, place = [], self
        while place.above is not None:
            parts.append(place.part)
            place = place.above
        return "".join([place.part, *reversed(parts)])


def places_of_nul(value: Any, place: Place) -> Iterator[Place]:  # noqa: ANN401 - any JSON value
    """The places of all texts and of all objects with keys that hold a NUL character."""
    if isinstance(value, str):
        if "\0" in value:
            yield place
    elif isinstance(value, dict):
        if any("\0" in key for key in value):
            yield place
        for key, item in value.items():
            yield from places_of_nul(item, Place(f".{key}", place))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from places_of_nul(item, Place(f"[{at}]", place))
