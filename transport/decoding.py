"""What is wrong with a value that cannot be decoded, in plain words instead of the decoder's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import msgspec

_PLACE: Final = re.compile(r"(?s)(?P<what>.*) - at `\$?(?P<where>.*)`")
_PART: Final = re.compile(r"\[(\d+)\]|\[\.\.\.\]|\.([^.\[]+)")
_KINDS: Final = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "null": "null",
    "object": "an object",
    "str": "a text",
}
_WORDINGS: Final = (
    (re.compile(r"Input data was truncated"), r"it ends too early"),
    (re.compile(r"JSON is malformed: (.*) \(byte (\d+)\)"), r"it is not valid JSON: \1, at byte \2"),
    (re.compile(r"Invalid enum value (.*)", re.DOTALL), r"\1 is not a possible value"),
    (re.compile(r"Object missing required field `(.*)`"), r"\1 is missing"),
    (re.compile(r"Object contains unknown field `(.*)`"), r"there is no field \1"),
)
_EXPECTED: Final = re.compile(r"Expected `(.*)`, got `(.*)`")


def in_plain_words(error: msgspec.DecodeError) -> str:
    """Say what is wrong with a value and where: ``expected a text, got null (item 1, endpoint)``."""
    placed = _PLACE.fullmatch(str(error))
    what, where = (str(error), "") if placed is None else (placed["what"], placed["where"])
    if (kinds := _EXPECTED.fullmatch(what)) is not None:
        wanted, got = (
            " or ".join(_KINDS.get(kind, kind) for kind in text.split(" | ")) for text in kinds.groups()
        )
        what = f"expected {wanted}, got {got}"
    for pattern, plain in _WORDINGS:
        what = pattern.sub(plain, what)
    parts = [f"item {int(item) + 1}" if item else key for item, key in _PART.findall(where) if item or key]
    return f"{what} ({', '.join(parts)})" if parts else what
