"""Ids of files and runs: a UUID is one id, however a sender spells it."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

CANONICAL: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""The canonical form of a UUID (RFC 9562): small letters with hyphens."""

_IS_CANONICAL: Final = re.compile(CANONICAL).fullmatch
_AS_UUID: Final = re.compile(
    r"(?:urn:uuid:)?\{?([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})\}?",
    re.IGNORECASE | re.ASCII,
).fullmatch


def canonical_did(did: str) -> str:
    """The canonical form of an id that is a UUID, in capitals, without hyphens, in braces or as a URN.

    Any other id is returned as it is.
    """
    if _IS_CANONICAL(did) is not None:
        return did
    uuid = _AS_UUID(did)
    return did if uuid is None else "-".join(uuid.groups()).lower()


def canonical_dids(dids: Collection[str]) -> frozenset[str]:
    """The canonical forms of ids; of thousands, most have it already."""
    return frozenset(dids if all(map(_IS_CANONICAL, dids)) else map(canonical_did, dids))


def spelled_alike(did: str) -> str:
    """The longest part of an id that every spelling of it has, but for capitals."""
    return did if _IS_CANONICAL(did) is None else did[-12:]


def canonicalize_dids(struct: msgspec.Struct, *names: str) -> None:
    """Give fields of a struct that is being made their canonical form; None and empty stay."""
    for name in names:
        did = getattr(struct, name)
        if did and _IS_CANONICAL(did) is None:
            msgspec.structs.force_setattr(struct, name, canonical_did(did))
