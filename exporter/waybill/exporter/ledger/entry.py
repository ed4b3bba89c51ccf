"""One entry of a ledger, and its form on the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from waybill.exporter.names import Hour


class LedgerEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One change of a root, or what somebody settled.

    Attributes:
        before: SHA-256 of the entry before it, in hex digits; empty in the first.
        at_ms: when it was begun, in epoch milliseconds.
        hours: the hours that it concerns.
        files: by path relative to the root, the seal of each changed file, and None for each removed one.
            None as a whole: the entry is begun and not completed.
        whole: `files` are all files of these hours.
        aside: for each file that was quarantined, where it was and where it is.
        found: by path, the seal of the file that was there before the change, and None where there was none.
            A path that is not in it was not looked at. In the first entry, the predecessors' seals.
        reasons: for each quarantined file, by where it is, why.
        keeps: the change removes no file: what is gone when a crash is mended was not removed by it.
        refiles: the change files again what the archive lacked, outside of its chain.
        accepted: by id of each finding that somebody accepted, the reason.
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
"""Raises `msgspec.DecodeError` if it is no entry."""
