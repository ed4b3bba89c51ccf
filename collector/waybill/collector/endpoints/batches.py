"""Bodies with many elements: each element is admitted or refused for itself, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from waybill.collector.http import Problem, count_values
from waybill.facets.chunks import in_chunks
from waybill.transport.admission import EXPLAINED_BYTES_MAX, depth_error, without_indices
from waybill.transport.errors import AdmissionError, Reason

ELEMENTS_MAX: Final = 250_000
"""How many events or records a body may have."""

REFUSED_MAX: Final = 1_000
"""A body with more refused elements is refused as a whole, since each takes far longer than a good one."""

VALUES_MAX: Final = 2_500_000
"""How many values and names of members one element may have: all that is made of it is in memory at once."""

RECORD_VALUES_MAX: Final = 500_000
"""The same of a record: all of it is decoded at once, and the event loop stands still meanwhile. Of an event
the facets are not decoded.
"""

EXPLAINED_MAX: Final = 100
"""Every reason is told for so many refused elements of one body, of `EXPLAINED_BYTES_MAX` together at most;
for any further one, the first reason.
"""

_WHOLE_BYTES: Final = 2**20
_PIECE_BYTES: Final = 64 * 2**10
"""The elements of a body above the first size are checked in pieces of the second, which fit a processor's
cache; others have their turn between them.
"""

BETWEEN_REASONS: Final = " | "

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])

_T = TypeVar("_T")


def sort_elements(
    body: bytes,
    wanted: str,
    alone: Callable[[msgspec.Raw], bytes],
    admit: Callable[[msgspec.Raw, bytes], _T],
    faults_of: Callable[[bytes, AdmissionError], Sequence[AdmissionError]],
) -> tuple[list[_T], list[tuple[int, list[str]]], list[tuple[bytes, str]]]:
    """Tell the elements of a JSON array that may be kept from those that may not.

    Args:
        body: the array.
        wanted: what it should be, for the sender of something else.
        alone: makes a body of one element.
        admit: takes an element, as it is and as a body of its own, and says what is kept of it.
        faults_of: finds everything that is wrong with a body that was refused.

    Returns:
        What is kept; index and reasons of each refused element; bytes and first reason of the same.

    Raises:
        Problem: the body is no JSON, no array, one of more than `ELEMENTS_MAX`, or more than `REFUSED_MAX` of
            them are refused.
    """
    good: list[_T] = []
    failed: list[tuple[int, list[str]]] = []
    refused: list[tuple[bytes, str]] = []
    left, left_bytes = EXPLAINED_MAX, EXPLAINED_BYTES_MAX
    for index, element in enumerate(_elements(body, wanted)):
        single = alone(element)
        try:
            good.append(admit(element, single))
        # No variable may outlive the error: its traceback holds this frame, and in a cycle the bodies that
        # the frame knows would stay in memory until the garbage collector runs.
        except AdmissionError as error:
            reasons = [str(error)]
            if left and len(single) <= left_bytes:
                left -= 1
                left_bytes -= len(single)
                reasons = [str(fault) for fault in faults_of(single, error)]
            if len(failed) == REFUSED_MAX:
                detail = (
                    f"more than {REFUSED_MAX:,} elements are wrong, so none is kept; correct them, or send "
                    f"fewer at once; the first: {failed[0][1][0]}"
                )
                status = HTTPStatus.UNPROCESSABLE_ENTITY
                raise Problem(status, detail, reason="too many wrong elements") from None
            failed.append((index, reasons))
            refused.append((single, str(error)))
    return good, failed, refused


def check_in_pieces(
    body: bytes, wanted: str, check: Callable[[bytes], tuple[bytes, int]]
) -> tuple[bytes, int]:
    """What is to be kept of an array of records and how many they are, as `check` says of its pieces.

    Others have their turn between the pieces, and only one of them is decoded at a time.

    Raises:
        AdmissionError: `check` has refused a piece.
        Problem: see `sort_elements`.
    """
    if len(body) <= _WHOLE_BYTES:
        return check(body)
    elements = _elements(body, wanted, RECORD_VALUES_MAX)
    total, is_kept_as_sent = 0, True
    for piece in _pieces(elements):
        kept, count = check(piece)
        total += count
        is_kept_as_sent &= kept is piece
    if not is_kept_as_sent:
        body = array_of([check(piece)[0][1:-1] for piece in _pieces(elements)])
    return body, total


def _pieces(elements: Sequence[msgspec.Raw]) -> Iterator[bytes]:
    return map(array_of, in_chunks(map(bytes, elements), len, _PIECE_BYTES))


def array_of(elements: Sequence[bytes | msgspec.Raw]) -> bytes:
    """A JSON array of these elements."""
    return b"[" + b",".join(elements) + b"]"


def _elements(body: bytes, wanted: str, values_max: int = VALUES_MAX) -> list[msgspec.Raw]:
    """The elements of a JSON array, each as the bytes that were sent, which are not copied."""
    try:
        elements = _ELEMENTS.decode(body)
    except msgspec.ValidationError:
        what, reason = "the body is no array", Reason.INVALID
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, reason = f"the body is no JSON ({error})", Reason.MALFORMED
    except RecursionError:
        raise refusal(depth_error()) from None
    else:
        if len(elements) > ELEMENTS_MAX:
            detail = f"the body has more than {ELEMENTS_MAX:,} elements; send less at once"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        if len(body) > 2 * values_max:
            for element in elements:
                check_values(bytes(element), values_max)
        return elements
    raise refusal(AdmissionError("$", what, f"send {wanted}", reason))


def check_values(element: bytes, values_max: int = VALUES_MAX) -> None:
    """Raise a `Problem` for an event or record of more values and names of members than these."""
    # In JSON at most every other byte is a comma or a colon.
    if len(element) > 2 * values_max and count_values(element) > values_max:
        detail = f"an element has more than {values_max:,} values and names of members; send less in one"
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def refusal(error: AdmissionError, faults: Sequence[AdmissionError] = ()) -> Problem:
    """What a sender is told of a body that may not be kept, with everything that is wrong with it."""
    first, *_ = faults = faults or (error,)
    # The path of a NUL has keys of the body.
    place = "a NUL" if "NUL" in error.what else without_indices(error.where)
    is_about_form = first.reason is Reason.INVALID
    return Problem(
        HTTPStatus(first.reason.http_status),
        str(first),
        errors=[str(fault) for fault in faults],
        reason=f"wrong: {place}" if is_about_form else first.reason.value,
    )
