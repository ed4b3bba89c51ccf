"""The most informative part of an error's text, short enough for a record.

Its position depends on the sender: the line after a traceback, the last `Caused by:` of a Java
stack trace, the second line of dbt's messages; otherwise the first line. Likely secrets are masked.
The whole text stays in the event.
"""

from __future__ import annotations

import re
from typing import Final

CAUSE_BYTES_MAX: Final = 1_024

_FIRST_BYTES_MAX: Final = 400
"""The length to which the first line is cut if a cause follows it."""
_READ_CHARS_MAX: Final = 100_000
_MASKED_CHARS_MAX: Final = 10_000
_CUT: Final = "…"
_TRACEBACK: Final = "Traceback (most recent call last):"
_CAUSED_BY: Final = "Caused by:"
_FRAMES_LEFT_OUT: Final = re.compile(r"\.\.\. \d+ (?:more|common frames omitted)")
_PY4J: Final = re.compile(r"An error occurred while calling \S+\s*:?")
# The line says only where the error happened: dbt's, and every line that announces the next one.
_HEADING: Final = re.compile(r"(?:\w+ )*Errors?(?: in .+\))?|.*:")
_SENSITIVE: Final = r"\w*(?:password|passwd|secret|token|credential|api_?key|access_?key|account_?key)\w*"
_SECRETS: Final = (
    (re.compile(r"(://[^\s/:@]*:)[^\s/@]+(?=@)"), r"\1[redacted]"),
    (
        re.compile(rf"""(?i)\b({_SENSITIVE}["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s,;&)\]}}]+)"""),
        r"\1[redacted]",
    ),
    (re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}"), r"\1[redacted]"),
)


def telling(message: str) -> str:
    """Return the part of an error's text that says why, at most `CAUSE_BYTES_MAX` of UTF-8; may be empty."""
    message = message.replace("\0", "\ufffd")  # which backends cannot store
    before, found, trace = message.rpartition(_TRACEBACK)
    if found and (raised := _raised(trace[:_READ_CHARS_MAX])):
        return _cut(_masked(raised), CAUSE_BYTES_MAX)
    first = _first(_lines((before.strip() or message)[:_READ_CHARS_MAX]))
    cause = _last_cause(message)
    if not cause or cause in first:
        return _cut(_masked(first), CAUSE_BYTES_MAX)
    return _cut(f"{_cut(_masked(first), _FIRST_BYTES_MAX)}; caused by: {_masked(cause)}", CAUSE_BYTES_MAX)


def shortened(text: str) -> str:
    """Return a reason that was given as text, cut to `CAUSE_BYTES_MAX` of UTF-8."""
    return _cut(text, CAUSE_BYTES_MAX)


def _raised(trace: str) -> str:
    """The text that Python writes after the frames of a traceback."""
    lines = trace.splitlines()
    at = next((at for at, line in enumerate(lines) if line.strip() and not line[0].isspace()), None)
    return "" if at is None else _first([line.strip() for line in lines[at:] if line.strip()])


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    plain = (line.removeprefix(": ") for line in lines if not (_is_frame(line) or _PY4J.fullmatch(line)))
    return [line for line in plain if line]


def _is_frame(line: str) -> bool:
    """Whether a line is one of a Java stack trace."""
    return (line.startswith("at ") and line.endswith(")")) or bool(_FRAMES_LEFT_OUT.fullmatch(line))


def _first(lines: list[str]) -> str:
    if not lines:
        return ""
    first, *rest = lines
    if rest and _HEADING.fullmatch(first) and not rest[0].startswith(_CAUSED_BY):
        return f"{first.rstrip(':')}: {rest[0]}"
    return first


def _last_cause(message: str) -> str:
    at = message.rfind(f"\n{_CAUSED_BY}")
    if at < 0:
        return ""
    following = message[at : at + _READ_CHARS_MAX].lstrip().removeprefix(_CAUSED_BY)
    return _first(_lines(following))


def _masked(text: str) -> str:
    text = text[:_MASKED_CHARS_MAX]
    for secret, mask in _SECRETS:
        text = secret.sub(mask, text)
    return text


def _cut(text: str, bytes_max: int) -> str:
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) <= bytes_max:
        return text
    kept = encoded[: bytes_max - len(_CUT.encode())]
    # A character that is cut in the middle is dropped.
    return kept.decode("utf-8", "ignore") + _CUT
