"""API keys: who may send, ask and administer. Only a key's hash is kept, in the home's journal."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport import SettingsError

if TYPE_CHECKING:
    from waybill.transport import Journal

_OWNER: Final = "keys"
_PREFIX: Final = "wbk_"
_SECRET_BYTES: Final = 32


class Role(StrEnum):
    """What a key is good for; ADMIN is good for everything."""

    EMIT = "emit"
    READ = "read"
    ADMIN = "admin"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a key."""

    name: str
    roles: tuple[Role, ...]
    sha256: str
    """Hex digest of the key. The key has 256 random bits, so a slow hash would add nothing."""
    created_ms: int

    def may(self, role: Role) -> bool:
        """Whether it is good for that."""
        return role in self.roles or Role.ADMIN in self.roles


_DECODER: Final = msgspec.json.Decoder(ApiKey)


class Keys:
    """The keys of one home, kept in its journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def all(self) -> tuple[ApiKey, ...]:
        """Every key, by name."""
        return tuple(_DECODER.decode(row) for _, row in sorted(self._journal.state(_OWNER).items()))

    def add(self, name: str, roles: Iterable[Role]) -> str:
        """Make a key and return it; it cannot be had again.

        Raises:
            SettingsError: the name is taken.
            JournalError: it could not be kept.
        """
        if self._journal.state_get(_OWNER, name) is not None:
            what = "is the name of a key already; revoke that one, or give another name"
            raise SettingsError("key", name, "command line", what)
        key = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        now_ms = time.time_ns() // 1_000_000
        kept = ApiKey(name=name, roles=tuple(sorted(set(roles))), sha256=_digest(key), created_ms=now_ms)
        self._journal.commit(_OWNER, put={name: msgspec.json.encode(kept)})
        return key

    def revoke(self, name: str) -> bool:
        """Forget a key; False when there is none of that name. A running collector follows within 2 s."""
        if self._journal.state_get(_OWNER, name) is None:
            return False
        self._journal.commit(_OWNER, delete=[name])
        return True


def match(keys: Iterable[ApiKey], given: str) -> ApiKey | None:
    """The key that was given; each comparison takes the same time, however much the two have in common."""
    digest, found = _digest(given), None
    for key in keys:
        if hmac.compare_digest(key.sha256, digest):
            found = key
    return found


def _digest(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
