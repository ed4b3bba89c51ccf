"""Bodies with many elements: each element is admitted or refused for itself, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from waybill.collector.http import Problem
from waybill.transport.admission import EXPLAINED_BYTES_MAX
from waybill.transport.errors import AdmissionError

ELEMENTS_MAX: Final = 100_000
"""How many events or records a body may have, unless all of them are good."""

EXPLAINED_MAX: Final = 100
"""Every reason is told for so many refused elements of one body, of `EXPLAINED_BYTES_MAX` together at most;
for any further one, the first reason.
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
        Problem: the body is no JSON, no array, or one of more than `ELEMENTS_MAX`.
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
            failed.append((index, reasons))
            refused.append((single, str(error)))
    return good, failed, refused


def _elements(body: bytes, wanted: str) -> list[msgspec.Raw]:
    """The elements of a JSON array, each as the bytes that were sent, which are not copied."""
    try:
        if body.count(b",") >= ELEMENTS_MAX:
            _count(body)
        return _ELEMENTS.decode(body)
    except msgspec.ValidationError:
        detail = f"the body is no array; send {wanted}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        detail = f"the body is no JSON ({error}); send {wanted}"
    except RecursionError:
        detail = f"the body is nested too deeply; send {wanted}"
    raise Problem(HTTPStatus.BAD_REQUEST, detail)


class _Element:
    """Stands for an element that is only counted."""


_COUNTED: Final = _Element()


def _count(body: bytes) -> None:
    """Count the elements while they are decoded, so that no more than `ELEMENTS_MAX` of them take memory."""
    left = ELEMENTS_MAX

    def count(_: object, __: object) -> _Element:
        nonlocal left
        left -= 1
        if left < 0:
            detail = f"the body has more than {ELEMENTS_MAX:,} elements; send less at once"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        return _COUNTED

    msgspec.json.decode(body, type=list[_Element], dec_hook=count)


def refusal(faults: Sequence[AdmissionError]) -> Problem:
    """What a sender is told of a body that may not be kept, with everything that is wrong with it."""
    error = faults[0]
    no_json = (error.where == "$" and "is no JSON" in error.what) or "is no UTF-8" in error.what
    status = HTTPStatus.BAD_REQUEST if no_json else HTTPStatus.UNPROCESSABLE_ENTITY
    return Problem(status, str(error), errors=[str(fault) for fault in faults])
