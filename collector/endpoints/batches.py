"""Bodies with many elements: each element is admitted or refused independently, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from waybill.facets.chunks import in_chunks
from waybill.transport.admission import depth_error, without_indices
from waybill.transport.errors import AdmissionError, Reason

from ..http import Problem, count_values

ELEMENTS_MAX: Final = 250_000
"""How many events or records a body may have."""

REFUSED_MAX: Final = 1_000
"""A body with more refused elements is refused as a whole, since each takes far longer than a good one."""

VALUES_MAX: Final = 2_500_000
"""How many values and member names one element may have: all its results are in memory at once."""

RECORD_VALUES_MAX: Final = 500_000
"""The same of a record: all of it is decoded at once, and the event loop stands still meanwhile. Of an event
the facets are not decoded.
"""

_WHOLE_BYTES: Final = 2**20
_PIECE_BYTES: Final = 48 * 2**10
"""The elements of a body above the first size are checked in pieces of the second, which fit a processor's
cache and `Bounds.free_bytes`; others have their turn between them.
"""

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])

_T = TypeVar("_T")


class Refused(msgspec.Struct, frozen=True):
    """An element that may not be stored: its index, it as a separate body, and why."""

    index: int
    body: bytes
    reason: str


def sort_elements(
    body: bytes,
    wanted: str,
    alone: Callable[[msgspec.Raw], bytes],
    admit: Callable[[msgspec.Raw, bytes], _T],
) -> tuple[list[_T], list[Refused]]:
    """Separate the elements of a JSON array that may be stored from those that may not.

    Args:
        body: the array.
        wanted: what the body should be, for the error message.
        alone: creates a body of one element.
        admit: takes an element, as it is and as a separate body, and returns the part to store.

    Returns:
        What is kept, and what is refused.

    Raises:
        Problem: the body is not JSON, not an array, has more than `ELEMENTS_MAX` elements, or more than
            `REFUSED_MAX` of them are refused.
    """
    good: list[_T] = []
    refused: list[Refused] = []
    for index, element in enumerate(_elements(body, wanted)):
        single = alone(element)
        try:
            good.append(admit(element, single))
        # No variable may outlive the error: its traceback holds this frame, and in a cycle the bodies that
        # the frame knows would stay in memory until the garbage collector runs.
        except AdmissionError as error:
            if len(refused) == REFUSED_MAX:
                detail = (
                    f"more than {REFUSED_MAX:,} elements are wrong, so none was stored; correct them, "
                    f"or send fewer at once; the first error: {refused[0].reason}"
                )
                status = HTTPStatus.UNPROCESSABLE_ENTITY
                raise Problem(status, detail, reason="too many wrong elements") from None
            refused.append(Refused(index, single, str(error)))
    return good, refused


def check_in_pieces(
    body: bytes, wanted: str, check: Callable[[bytes], tuple[bytes, int]]
) -> tuple[bytes, int]:
    """The parts of an array of records to store, and their number, as `check` returns them for its pieces.

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
        what, reason = "the body is not an array", Reason.INVALID
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what, reason = f"the body is not JSON ({error})", Reason.MALFORMED
    except RecursionError:
        raise refusal(depth_error()) from None
    else:
        if len(elements) > ELEMENTS_MAX:
            detail = f"the body has more than {ELEMENTS_MAX:,} elements; send fewer at once"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        if len(body) > 2 * values_max:
            for element in elements:
                check_values(bytes(element), values_max)
        return elements
    raise refusal(AdmissionError("$", what, f"send {wanted}", reason))


def check_values(element: bytes, values_max: int = VALUES_MAX) -> None:
    """Raise a `Problem` for an event or record with more values and member names than these."""
    # In JSON at most every other byte is a comma or a colon.
    if len(element) > 2 * values_max and count_values(element) > values_max:
        detail = f"an element has more than {values_max:,} values and member names; split it up"
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)


def refusal(error: AdmissionError) -> Problem:
    """The response for a body that may not be stored."""
    # The path of a NUL has keys of the body.
    place = "a NUL" if "NUL" in error.what else without_indices(error.where)
    is_about_form = error.reason is Reason.INVALID
    return Problem(
        HTTPStatus(error.reason.http_status),
        str(error),
        errors=[str(error)],
        reason=f"wrong: {place}" if is_about_form else error.reason.value,
    )
