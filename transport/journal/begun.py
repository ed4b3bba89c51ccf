"""The note of the transforms that a file has begun, kept before the body of the last one runs.

It is a mark: no backend gets it, and no record rests on it alone. It says what a file was about when its
program was killed. Its text has the shape of an event, so that the rules of `redact` apply to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from waybill.facets import DELTA_FILE_FACET

_PREFIX: Final = b"transforms:"
_CHARS_MAX: Final = 8_192
"""The names of one note; longer ones would make the notes of a file with many transforms large."""


class BegunTransforms(msgspec.Struct, frozen=True, array_like=True):
    """The transforms that a path of a file has begun.

    Attributes:
        run_id: the run of the file.
        count: their number.
        names: the last of them, in order; empty if they are too long to be noted, or redacted.
    """

    run_id: str
    count: int
    names: tuple[str, ...] = ()


class _File(msgspec.Struct):
    transforms: tuple[str, ...] = ()


class _Facets(msgspec.Struct):
    file: _File = msgspec.field(default_factory=_File, name=DELTA_FILE_FACET)


class _Run(msgspec.Struct):
    runId: str  # noqa: N815 - OpenLineage's own name
    facets: _Facets = msgspec.field(default_factory=_Facets)


class _Note(msgspec.Struct):
    count: int
    run: _Run


def is_note(mark: bytes) -> bool:
    """Whether the body of a mark is such a note."""
    return mark.startswith(_PREFIX)


def encode_begun(run_id: str, transforms: Sequence[str]) -> bytes:
    """The body of the note that a path has begun these transforms, the last one now."""
    first, chars = len(transforms), 0
    while first and (chars := chars + len(transforms[first - 1])) <= _CHARS_MAX:
        first -= 1
    run = _Run(run_id, _Facets(_File(tuple(transforms[first:]))))
    return _PREFIX + msgspec.json.encode(_Note(len(transforms), run))


def decode_begun(mark: bytes) -> BegunTransforms | None:
    """What the body of a mark notes; None if it is another mark, or cannot be read."""
    if not is_note(mark):
        return None
    try:
        note = _NOTE.decode(mark[len(_PREFIX) :])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return BegunTransforms(note.run.runId, note.count, note.run.facets.file.transforms)


def redact_mark(mark: bytes, redact: Callable[[bytes], bytes]) -> bytes:
    """The body of a mark, redacted if it is such a note."""
    return _PREFIX + redact(mark[len(_PREFIX) :]) if is_note(mark) else mark


_NOTE: Final = msgspec.json.Decoder(_Note)
