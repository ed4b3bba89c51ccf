"""API keys: who may send, query and administer. Only a key's hash is stored, in the home's journal."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.errors import NameTakenError

if TYPE_CHECKING:
    from waybill.transport import Journal

_OWNER: Final = "keys"
_REVOKED: Final = "key_revoked"
_PREFIX: Final = "wbk_"
_SECRET_BYTES: Final = 32


class Role(StrEnum):
    """The permission that a key grants; ADMIN grants everything."""

    EMIT = "emit"
    READ = "read"
    ADMIN = "admin"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """The stored part of a key."""

    name: str
    roles: tuple[Role, ...]
    sha256: str
    """Hex digest of the key. The key has 256 random bits, so a slow hash would add nothing."""
    created_ms: int

    def may(self, role: Role) -> bool:
        """Whether the key grants this role."""
        return role in self.roles or Role.ADMIN in self.roles


_DECODER: Final = msgspec.json.Decoder(ApiKey)


class Keys:
    """The keys of one home, stored in its journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def all(self) -> tuple[ApiKey, ...]:
        """Every key, by name."""
        return tuple(_DECODER.decode(row) for _, row in sorted(self._journal.state(_OWNER).items()))

    def had_any(self) -> bool:
        """Whether there is a key, or was one; then every request to a collector needs one."""
        return self._journal.meta(_REVOKED) is not None or bool(self._journal.state(_OWNER))

    def add(self, name: str, roles: Iterable[Role]) -> str:
        """Create a key and return it; it cannot be shown again.

        Raises:
            NameTakenError: the name is taken.
            JournalError: it could not be kept.
        """
        if self._journal.state_get(_OWNER, name) is not None:
            raise NameTakenError(f"there is a key {name} already; revoke it first, or give another name")
        key = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        now_ms = SYSTEM_CLOCK.now_ms()
        kept = ApiKey(name=name, roles=tuple(sorted(set(roles))), sha256=_digest(key), created_ms=now_ms)
        self._journal.commit(_OWNER, put={name: msgspec.json.encode(kept)})
        return key

    def revoke(self, name: str) -> bool:
        """Revoke a key; False if there is none of that name. A running collector applies this within 2 s.

        Requests still need a key when the last one is revoked.
        """
        if self._journal.state_get(_OWNER, name) is None:
            return False
        self._journal.set_meta(_REVOKED, "yes")
        self._journal.commit(_OWNER, delete=[name])
        return True


def match(keys: Iterable[ApiKey], given: str) -> ApiKey | None:
    """The matching key; each comparison takes the same time, however much the two have in common."""
    digest, found = _digest(given), None
    for key in keys:
        if hmac.compare_digest(key.sha256, digest):
            found = key
    return found


def _digest(key: str) -> str:
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
