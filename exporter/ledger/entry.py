"""One entry of a ledger, and its format on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from ..names import Hour


class LedgerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a root, or the findings that somebody accepted.

    Attributes:
        before: SHA-256 of the previous entry, in hex digits; empty in the first entry.
        at_ms: when it was started, in epoch milliseconds.
        hours: the hours that it concerns.
        files: by path relative to the root, the seal of each changed file, or None for each removed one. None
            as a whole: the entry is started but not completed.
        whole: whether `files` are all files of these hours.
        aside: for each quarantined file, its old and its new path.
        found: by path, the seal of the file that was there before the change, or None if there was none.
            Other paths were not checked. In the first entry, the predecessors' seals.
        reasons: the reason for each quarantined file, by its new path.
        keeps: the change removes no file; files missing after a crash were not removed by it.
        refiles: the change refiles entries that the archive lacked, outside its chain.
        accepted: the reason for each accepted finding, by its id.
        restored: the ids of findings whose rows were filed again.
    """

    before: str
    at_ms: int
    hours: tuple[Hour, ...]
    files: dict[str, str | None] | None = None
    whole: bool = False
    aside: dict[str, str] = {}
    found: dict[str, str | None] = {}
    reasons: dict[str, str] = {}
    keeps: bool = False
    refiles: bool = False
    accepted: Mapping[str, str] = {}
    restored: tuple[str, ...] = ()


def hash_of(content: bytes) -> str:
    """The SHA-256 of an encoded entry, in hex digits."""
    return hashlib.sha256(content).hexdigest()


encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.Decoder(LedgerEntry).decode
"""Decode an entry; raises `msgspec.DecodeError` if it is not one."""
