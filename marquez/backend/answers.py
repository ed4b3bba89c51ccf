"""The meaning of a backend's response to one event.

The status codes are those of Marquez 0.51. It answers 422 to events that lack something, but 500 both to
permanently bad events and to its own failures, and an event answered with 500 may have been
stored. If it cannot read the event at all, the body of that 500 says ``"code": 400``. Any other 500 alone
decides nothing; `waybill.marquez.delivery.schedule` explains what does.
"""

from __future__ import annotations

import re
from enum import Enum
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec

from waybill.transport.config import apply_command

WEB_PAGE: Final = "a web page"
"""What stands for the words of a backend, or of a proxy before it, that are HTML."""

_PAGE: Final = re.compile(r"\s*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)

_TITLE: Final = re.compile(r"<title[^>]*>([^<]*)</title>", re.IGNORECASE)
_TITLE_CHARS_MAX: Final = 80

WORDS_MAX: Final = 1000
"""How many characters of a backend's own message are kept."""


class Verdict(Enum):
    """The conclusions that one response alone allows."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    """This event is permanently bad."""
    AWAY = "away"
    """Nothing answers, or all clients are told to slow down: this says nothing about the event."""
    UNWELL = "unwell"
    """The backend is failing or the event is bad: only the responses to other events can tell."""
    BARRED = "barred"
    """The address is wrong: a person has to correct it."""
    DENIED = "denied"
    """The key is wrong: a person has to correct it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one attempt to deliver.

    Attributes:
        status: the HTTP status; None if there was no response.
        words: the backend's own message, or the connection's error; one line, at most `WORDS_MAX` characters.
        retry_after_s: how long the backend asked clients to wait; 0 if it did not.
        with_key: whether a key was sent with the event.
    """

    verdict: Verdict
    status: int | None = None
    words: str = ""
    retry_after_s: float = 0.0
    elapsed_s: float = 0.0
    with_key: bool = False

    @property
    def shown(self) -> str:
        """Status and words, as part of a sentence."""
        if self.status is None:
            return self.words
        return f"{self.status} ({self.words})" if self.words else str(self.status)


class Correction(msgspec.Struct, frozen=True):
    """A setting that somebody may have to correct.

    Attributes:
        setting: what to call it.
        how: the line to write or the command to run; empty where the name says enough.
    """

    setting: str
    how: str = ""

    def said(self, to: str = "") -> str:
        """The setting, and how to correct it; `to` says to what."""
        named = f"{self.setting} {to}" if to else self.setting
        return f"{named}: {self.how}" if self.how else named


def marquez_settings(home: Path | None = None) -> tuple[Correction, Correction]:
    """The settings of the address and of the key of Marquez; without a home, as a file has them."""
    line = "write `marquez_url: URL` into waybill.yaml"
    return (
        Correction("marquez_url", f"`{apply_command(home, {'marquez_url': 'URL'})}`" if home else line),
        Correction(
            "marquez_api_key", "write `marquez_api_key: KEY` into waybill.yaml, or set OPENLINEAGE_API_KEY"
        ),
    )


_REFUSED: Final = frozenset({400, 413, 415, 422})
_BARRED: Final = frozenset({404, 405, 407, 410, 421})
_DENIED: Final = frozenset({401, 403})


class _ErrorBody(msgspec.Struct):
    code: int = 0


def judge(status: int, words: str = "") -> Verdict:
    """The meaning of an HTTP status and body for the event.

    A redirect is a wrong address: following it would turn the POST into a GET, and its 200 would lose the
    event.
    """
    if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110, section 15.3
        return Verdict.DELIVERED
    if status in _REFUSED or (status == HTTPStatus.INTERNAL_SERVER_ERROR and _code(words) in _REFUSED):
        return Verdict.REFUSED
    if status in _DENIED:
        return Verdict.DENIED
    if status in _BARRED or 300 <= status < 400:  # noqa: PLR2004 - RFC 9110, section 15.4
        return Verdict.BARRED
    return Verdict.AWAY if status == HTTPStatus.TOO_MANY_REQUESTS else Verdict.UNWELL


def _code(words: str) -> int:
    """The status in an error's body, if that is JSON with a ``code``; otherwise 0."""
    try:
        return msgspec.json.decode(words, type=_ErrorBody).code
    except (msgspec.DecodeError, RecursionError):
        return 0


def one_line(text: str) -> str:
    """A backend's message as one printable line, at most `WORDS_MAX` characters; a web page's title."""
    if _PAGE.match(text):
        title = _TITLE.search(text)
        return f"{WEB_PAGE}: {_printable(title[1])[:_TITLE_CHARS_MAX]}" if title else WEB_PAGE
    line = _printable(text)
    return line if len(line) <= WORDS_MAX else line[: WORDS_MAX - 1] + "…"


def explain(
    answer: Answer,
    url: str,
    *,
    to_correct: tuple[Correction, Correction],
    has_stopped: bool = False,
) -> str:
    """Return in one sentence why nothing is delivered now, and what to do.

    `to_correct` are the settings of the address and of the key; `has_stopped` tells whether the delivery
    waits for another key.
    """
    address, key = to_correct
    if answer.verdict is Verdict.DENIED:
        stopped = ", so nothing is sent any more" if has_stopped else ""
        if not answer.with_key:
            return (
                f"{url} wants a key and none is given, it answers {answer.shown}{stopped}; set {key.said()}"
            )
        return (
            f"{url} refuses the key that is given, it answers {answer.shown}{stopped}; correct {key.said()}"
        )
    if answer.verdict is Verdict.BARRED and answer.status is None:
        return f"{url} cannot be used: {answer.words}"
    if answer.verdict is Verdict.BARRED:
        correct = address.said("to where its API is")
        return f"{url} takes no events, it answers {answer.shown}; correct {correct}"
    if answer.status is None:
        says = f"{url} does not answer: {answer.words}, and events wait in the journal until it does"
        return f"{says}; start it, or correct {address.said()}"
    return f"{url} answers {answer.shown}, and events wait in the journal until it takes them; see its log"


def setting_of(answer: Answer, to_correct: tuple[Correction, Correction]) -> str | None:
    """The setting to correct, that of the address or of the key; None if neither is the cause."""
    address, key = to_correct
    if answer.verdict is Verdict.DENIED:
        return key.setting
    return address.setting if answer.verdict is Verdict.BARRED and answer.status is not None else None


def _printable(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
