"""What a backend's answer to one event means.

The status codes are those of Marquez 0.51: it says 422 to events it misses something in, but 500 both to
events that are bad for good and to any trouble of its own, and a 500 may have been stored. Of what it cannot
read as an event it says so within that 500: the body's ``code`` is 400. Any other 500 alone decides nothing;
see `waybill.marquez.delivery.schedule` for what does.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

WORDS_MAX: Final = 1000
"""The most characters of a backend's own words that are kept."""


class Verdict(Enum):
    """What one answer says, as far as one answer can."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    """This event is bad for good."""
    AWAY = "away"
    """Nobody is there, or everybody is asked to slow down: it says nothing about the event."""
    UNWELL = "unwell"
    """The backend's trouble or the event's: only the answers to other events can tell."""
    BARRED = "barred"
    """The address is wrong, so that a person has to do something."""
    DENIED = "denied"
    """The key is wrong, so that a person has to do something."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one attempt to deliver.

    Attributes:
        verdict: what it means.
        status: the HTTP status; None when there was no answer.
        words: the backend's own words, or what the connection failed with; one line, at most `WORDS_MAX`
            characters.
        retry_after_s: how long the backend asked to be left alone, in seconds; 0 when it did not.
        elapsed_s: how long the attempt took, in seconds.
    """

    verdict: Verdict
    status: int | None = None
    words: str = ""
    retry_after_s: float = 0.0
    elapsed_s: float = 0.0

    @property
    def heard(self) -> str:
        """Status and words, as they go into a sentence."""
        if self.status is None:
            return self.words
        return f"{self.status} ({self.words})" if self.words else str(self.status)


_REFUSED: Final = frozenset({400, 413, 415, 422})
_BARRED: Final = frozenset({404, 405, 407, 410, 421})
_DENIED: Final = frozenset({401, 403})
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500


class _Said(msgspec.Struct):
    """What is read of an error's body."""

    code: int = 0


_SAID: Final = msgspec.json.Decoder(_Said)


def judge(status: int, words: str = "") -> Verdict:
    """What an answer means for the event that it is to.

    A redirect is a wrong address: following it would turn the POST into a GET, and its 200 would lose the
    event.

    Args:
        status: the HTTP status.
        words: the body.
    """
    if status == _SERVER_ERROR and _code(words) in _REFUSED:
        return Verdict.REFUSED
    if 200 <= status < 300:  # noqa: PLR2004 - RFC 9110, section 15.3
        return Verdict.DELIVERED
    if status in _REFUSED:
        return Verdict.REFUSED
    if status in _DENIED:
        return Verdict.DENIED
    if status in _BARRED or 300 <= status < 400:  # noqa: PLR2004 - RFC 9110, section 15.4
        return Verdict.BARRED
    return Verdict.AWAY if status == _TOO_MANY_REQUESTS else Verdict.UNWELL


def _code(words: str) -> int:
    """The status that an error's body says, where that is JSON with a ``code``; else 0."""
    try:
        return _SAID.decode(words).code
    except (msgspec.DecodeError, RecursionError):
        return 0


def one_line(text: str) -> str:
    """A backend's words fit to be kept and shown: one line, printable, at most `WORDS_MAX` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= WORDS_MAX else line[: WORDS_MAX - 1] + "…"


def explain(
    answer: Answer,
    url: str,
    *,
    to_correct: tuple[str, str] = ("marquez_url", "marquez_api_key"),
    has_stopped: bool = False,
) -> str:
    """One sentence for a person: why nothing is delivered now, and the way out.

    Args:
        answer: the last one; not a delivered one.
        url: the address as it may be shown, without secrets.
        to_correct: what to call the settings of the address and of the key.
        has_stopped: whether the delivery waits for another key.
    """
    address, key = to_correct
    if answer.verdict is Verdict.DENIED:
        stopped = ", so nothing is sent any more" if has_stopped else ""
        return f"{url} does not let us in, it answers {answer.heard}{stopped}; correct {key}"
    if answer.verdict is Verdict.BARRED:
        return f"{url} {_barred(answer, address)}"
    if answer.status is not None:
        return f"{url} answers {answer.heard}; events wait in the journal and are tried again by themselves"
    return (
        f"{url} does not answer: {answer.words}; events wait in the journal and are tried again by themselves"
    )


def setting_of(answer: Answer, to_correct: tuple[str, str]) -> str | None:
    """Which of the settings of address and key somebody has to correct; None where neither is to blame."""
    address, key = to_correct
    if answer.verdict is Verdict.DENIED:
        return key
    return address if answer.verdict is Verdict.BARRED and answer.status is not None else None


def _barred(answer: Answer, address: str) -> str:
    if answer.status is None:
        return f"cannot be used: {answer.words}"
    return f"takes no events, it answers {answer.heard}; correct {address} to where its API is"
