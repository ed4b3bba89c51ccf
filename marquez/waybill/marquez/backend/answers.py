"""What a backend's answer to one event means.

The status codes are those of Marquez 0.51: it answers 422 to events that lack something, but 500 both to
events that are bad for good and to any trouble of its own, and an event answered with 500 may have been
stored. Where it cannot read the event at all, the body of that 500 says ``"code": 400``. Any other 500 alone
decides nothing; `waybill.marquez.delivery.schedule` says what does.
"""

from __future__ import annotations

from enum import Enum
from http import HTTPStatus
from typing import Final

import msgspec

WORDS_MAX: Final = 1000
"""How many characters of a backend's own words are kept."""


class Verdict(Enum):
    """What one answer alone can say."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    """This event is bad for good."""
    AWAY = "away"
    """Nobody is there, or everybody is asked to slow down: it says nothing about the event."""
    UNWELL = "unwell"
    """The backend is in trouble or the event is bad: only the answers to other events can tell."""
    BARRED = "barred"
    """The address is wrong: a person has to correct it."""
    DENIED = "denied"
    """The key is wrong: a person has to correct it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one attempt to deliver.

    Attributes:
        status: the HTTP status; None when there was no answer.
        words: the backend's own words, or what the connection failed with; one line, at most `WORDS_MAX`
            characters.
        retry_after_s: how long the backend asked to be left alone; 0 when it did not.
    """

    verdict: Verdict
    status: int | None = None
    words: str = ""
    retry_after_s: float = 0.0
    elapsed_s: float = 0.0

    @property
    def shown(self) -> str:
        """Status and words, as part of a sentence."""
        if self.status is None:
            return self.words
        return f"{self.status} ({self.words})" if self.words else str(self.status)


_REFUSED: Final = frozenset({400, 413, 415, 422})
_BARRED: Final = frozenset({404, 405, 407, 410, 421})
_DENIED: Final = frozenset({401, 403})


class _ErrorBody(msgspec.Struct):
    code: int = 0


def judge(status: int, words: str = "") -> Verdict:
    """What an HTTP status and a body mean for the event that they answer.

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
    """A backend's words as one printable line of at most `WORDS_MAX` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= WORDS_MAX else line[: WORDS_MAX - 1] + "…"


def explain(
    answer: Answer,
    url: str,
    *,
    to_correct: tuple[str, str] = ("marquez_url", "marquez_api_key"),
    has_stopped: bool = False,
) -> str:
    """Say in one sentence why nothing is delivered now, and what to do.

    `to_correct` names the settings of the address and of the key; `has_stopped` tells whether the delivery
    waits for another key.
    """
    address, key = to_correct
    if answer.verdict is Verdict.DENIED:
        stopped = ", so nothing is sent any more" if has_stopped else ""
        return f"{url} does not let us in, it answers {answer.shown}{stopped}; correct {key}"
    if answer.verdict is Verdict.BARRED and answer.status is None:
        return f"{url} cannot be used: {answer.words}"
    if answer.verdict is Verdict.BARRED:
        return f"{url} takes no events, it answers {answer.shown}; correct {address} to where its API is"
    says = f"does not answer: {answer.words}" if answer.status is None else f"answers {answer.shown}"
    return f"{url} {says}; events wait in the journal and are tried again by themselves"


def setting_of(answer: Answer, to_correct: tuple[str, str]) -> str | None:
    """Which setting somebody has to correct, the address's or the key's; None where neither is to blame."""
    address, key = to_correct
    if answer.verdict is Verdict.DENIED:
        return key
    return address if answer.verdict is Verdict.BARRED and answer.status is not None else None
