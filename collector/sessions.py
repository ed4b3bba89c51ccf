"""Sessions: who has signed in to the page with an API key.

Only a hash of a session's id is stored, in the home's journal.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from waybill.transport import Journal

    from .keys import ApiKey

SESSION_S: Final = 8 * 3_600
"""How long a session lasts."""

SESSIONS_MAX: Final = 1_000
"""So many are kept; with one more, the one that ends first ends now."""

COOKIE: Final = "waybill_session"
"""The cookie that has a session's id."""

_OWNER: Final = "sessions"
_SECRET: Final = "session_secret"  # noqa: S105 - the name of a row
_ID_BYTES: Final = 32


class _Session(msgspec.Struct, frozen=True):
    key_sha256: str
    ends_ms: int


_DECODER: Final = msgspec.json.Decoder(_Session)


class Sessions:
    """The sessions of one home, stored in its journal, so that all workers know them.

    All but `token_of` wait for the journal, so none is for an event loop. What the workers of a collector
    have in common is made by the process that starts them.

    Args:
        journal: the home's journal.

    Raises:
        JournalError: the secret of its first collector could not be kept.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        secret = journal.meta(_SECRET)
        if secret is None:
            secret = secrets.token_hex(_ID_BYTES)
            journal.set_meta(_SECRET, secret)
        self._secret = secret.encode()

    def begin(self, key: ApiKey) -> str:
        """Begin a session of a key; returns its id, which is a secret of its browser.

        Raises:
            JournalError: it could not be kept.
        """
        session_id = secrets.token_urlsafe(_ID_BYTES)
        ends = {name: _DECODER.decode(row).ends_ms for name, row in self._journal.state(_OWNER).items()}
        in_order = sorted(ends, key=ends.__getitem__)
        over = set(in_order[: max(len(in_order) - SESSIONS_MAX + 1, 0)])
        over.update(name for name, ends_ms in ends.items() if ends_ms <= self._journal.clock.now_ms())
        session = _Session(key.sha256, self._journal.clock.now_ms() + SESSION_S * 1_000)
        row = {_digest(session_id): msgspec.json.encode(session)}
        self._journal.commit(_OWNER, put=row, delete=sorted(over))
        return session_id

    def key_of(self, session_id: str, keys: Iterable[ApiKey]) -> ApiKey | None:
        """The key of a session; None if it has ended, or its key is not one of these any more."""
        row = self._journal.state_get(_OWNER, _digest(session_id)) if session_id else None
        if row is None or (session := _DECODER.decode(row)).ends_ms <= self._journal.clock.now_ms():
            return None
        return next((key for key in keys if key.sha256 == session.key_sha256), None)

    def end(self, session_id: str) -> None:
        """End a session, if it is one.

        Raises:
            JournalError: the end could not be kept.
        """
        self._journal.commit(_OWNER, delete=[_digest(session_id)])

    def token_of(self, session_id: str) -> str:
        """The token of all forms of a session, which no other site knows; `session_id` may be empty."""
        return hmac.new(self._secret, session_id.encode("utf-8", "replace"), sha256).hexdigest()


def session_id_in(cookies: str) -> str:
    """The id of the session in the header `Cookie`; empty if there is none."""
    pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
    return next((value for name, _, value in pairs if name == COOKIE), "")


def _digest(session_id: str) -> str:
    return sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
