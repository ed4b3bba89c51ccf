"""The reasons in an error's text, short enough for a record.

Their position depends on the sender: the line after a traceback, the second line of dbt's messages,
otherwise the first line; and the same for each error that caused another, after `Caused by:`.
Likely secrets are masked. The whole text stays in the event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

CAUSE_BYTES_MAX: Final = 1_024

_FIRST_BYTES_MIN: Final = 400
"""What is left of the first reason at least if the last one is long."""
_CAUSES_MAX: Final = 16
"""The most causes that are read, the last ones: further up a chain only repeats them."""
_READ_CHARS_MAX: Final = 100_000
_MASKED_CHARS_MAX: Final = 10_000
_CUT: Final = "…"
_TRACEBACK: Final = "Traceback (most recent call last):"
_CHAINED: Final = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
CAUSED_BY: Final = "Caused by:"
"""What begins the line of an error's cause."""
_JOIN: Final = "; caused by: "
_OF_PROGRAM: Final = re.compile(r"\A__(?:mp_)?main__\.")
"""The module of what the program itself defines, in a process that multiprocessing began, too."""
_CLASS: Final = re.compile(r"\A(?:(?:[\w$]+\.)*\w*(?:Exception|Error): )+")
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
    (re.compile(r"(?i)\b((?:sig|signature|pwd)=)[^\s&;,\"']+"), r"\1[redacted]"),
    (re.compile(r"(?<![\w/:@.])([\w.+-]+:)[^\s/:@]+(?=@\w)"), r"\1[redacted]"),
)


def telling(message: str) -> str:
    """Return the parts of an error's text that say why, at most `CAUSE_BYTES_MAX` of UTF-8; may be empty.

    Of a chain of errors these are the first and what caused it. If that is too long, the first is cut, and
    those between it and the last are left out.
    """
    message = message.replace("\0", "\ufffd")  # which backends cannot store
    before, found, trace = message.rpartition(_TRACEBACK)
    if found and (raised := _raised(trace[:_READ_CHARS_MAX])):
        return _joined([*_said_of_traceback(message), raised, *_raised_before(before)])
    first = _first(_lines((before.strip() or message)[:_READ_CHARS_MAX]))
    return _joined([first, *(_first(_lines(cause)) for cause in _chained(message)[1:])])


def announces(message: str) -> bool:
    """Whether a message only says where an error happened, or that its reason follows."""
    return _HEADING.fullmatch(message.strip()) is not None


def chain_of(error: BaseException) -> list[BaseException]:
    """Return an exception, and those that caused it: for a group, the first of its exceptions."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < _CAUSES_MAX:  # a chain may be a circle
        chain.append(cause)
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return chain


def shortened(text: str) -> str:
    """Return a reason that was given as text, cut to `CAUSE_BYTES_MAX` of UTF-8."""
    return _cut(text, CAUSE_BYTES_MAX)


def _chained(text: str) -> list[str]:
    """What is said of an error and of each that caused it, of a long chain the first and the last ones."""
    first, *causes = text.split(f"\n{CAUSED_BY}")
    return [error[:_READ_CHARS_MAX] for error in (first, *causes[-_CAUSES_MAX:])]


def _said_of_traceback(message: str) -> Iterator[str]:
    """The reasons of the errors that the one with a traceback in its text caused, but for Java's.

    Java's say where a Python function was called.
    """
    before, _, _ = message.partition(_TRACEBACK)
    for error in _chained(before)[:-1]:
        if not any(_is_frame(line.strip()) for line in error.splitlines()):
            yield _first(_lines(error))


def _raised(trace: str) -> str:
    """The text that Python writes after the frames of a traceback."""
    lines = trace.splitlines()
    at = next((at for at, line in enumerate(lines) if line.strip() and not line[0].isspace()), None)
    if at is None:
        return ""
    return _OF_PROGRAM.sub("", _first([line.strip() for line in lines[at:] if line.strip()]))


def _raised_before(text: str) -> Iterator[str]:
    """What Python raised before it raised the error whose traceback follows, the latest first."""
    for _ in range(_CAUSES_MAX):
        before, found, trace = text.rpartition(_TRACEBACK)
        if not found or not trace.rstrip().endswith(_CHAINED):
            return
        yield _raised(trace[:_READ_CHARS_MAX])
        text = before


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
    if rest and _HEADING.fullmatch(first) and not rest[0].startswith(CAUSED_BY):
        return f"{first.rstrip(':')}: {rest[0]}"
    return first


def _joined(reasons: list[str]) -> str:
    """The reasons that are not said already, as one text; a heading is left out if a reason follows it."""
    said: list[str] = []
    for reason in (mask_secrets(one[:_MASKED_CHARS_MAX]) for one in reasons):
        if reason and not any(_is_said(reason, earlier) for earlier in said):
            said.append(reason)
    if said[1:] and said[0].endswith(":"):
        del said[0]
    whole = _JOIN.join(said)
    if not said[1:] or len(whole.encode("utf-8", "surrogatepass")) <= CAUSE_BYTES_MAX:
        return _cut(whole, CAUSE_BYTES_MAX)
    first, *between, last = said
    rest = _JOIN.join(["", _CUT, last] if between else ["", last])
    room = CAUSE_BYTES_MAX - len(rest.encode("utf-8", "surrogatepass"))
    return _cut(_cut(first, max(room, _FIRST_BYTES_MIN)) + rest, CAUSE_BYTES_MAX)


def _is_said(reason: str, earlier: str) -> bool:
    """Whether a reason is part of an earlier one, or the same with another class of error."""
    return reason in earlier or _CLASS.sub("", reason) == _CLASS.sub("", earlier)


def mask_secrets(text: str) -> str:
    """A text in which likely secrets are masked: passwords of users, and values of what is named like one."""
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
