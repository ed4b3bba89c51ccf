"""Rejects: events and records that admission refused, stored with the reason.

They can be fixed and sent again. The collector adds to them, and so does `WaybillTransport`. They are rows
of the journal's state, identified by their bytes, so a sender that repeats itself adds nothing. Their number
is bounded, and the oldest are deleted first, so that bad input cannot fill the journal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from .admission import Redaction, check_records
from .clock import SYSTEM_CLOCK
from .journal import Kind

if TYPE_CHECKING:
    from .journal import Journal

REJECTS_MAX: Final = 10_000
BODIES_MAX_BYTES: Final = 256 * 2**20

BODY_MAX_BYTES: Final = 8 * 2**20
"""For anything larger, only the reason is stored: nobody corrects it by hand."""

_CHECK_EVERY: Final = 200
_CHECK_EVERY_BYTES: Final = 16 * 2**20
"""The bounds are checked after this many more rejects or bytes: a check takes longer than an addition."""

_OWNER: Final = "rejects"
_REJECT: Final = "reject:"
_BODY: Final = "body:"


class Reject(msgspec.Struct, frozen=True, kw_only=True):
    """A refused event, record or body."""

    id: str
    """Derived from its bytes, so that a repeat has the same id."""
    kind: Kind
    set_aside_ms: int
    """When it was refused last, epoch milliseconds."""
    reason: str
    """Why, and what the sender can do."""
    size_bytes: int


_DECODER: Final = msgspec.json.Decoder(Reject)


class Rejects:
    """The rejects of one home's journal, within their bounds; `redaction` is applied before storing."""

    def __init__(self, journal: Journal, redaction: Redaction | None = None) -> None:
        self._journal = journal
        self._redaction = redaction or Redaction()
        self._lock = threading.Lock()
        self._added, self._added_bytes = _CHECK_EVERY, 0

    def all(self) -> list[Reject]:
        """Every reject, oldest first."""
        rows = self._journal.state(_OWNER, _REJECT).values()
        return sorted((_DECODER.decode(row) for row in rows), key=lambda one: (one.set_aside_ms, one.id))

    def get(self, name: str) -> Reject | None:
        """One reject; None if there is none with that id."""
        row = self._journal.state_get(_OWNER, _REJECT + name)
        return None if row is None else _DECODER.decode(row)

    def body(self, name: str) -> bytes | None:
        """The bytes of a reject as they were sent, but redacted; a record is in an array of its own.

        Empty if there were more than `BODY_MAX_BYTES`, or if redaction applies and the body is not JSON.
        """
        return self._journal.state_get(_OWNER, _BODY + name)

    def add(self, kind: Kind, refused: Iterable[tuple[bytes, str]]) -> None:
        """Store rejects, the bytes and the reason of each; they are durable on return.

        Raises:
            JournalError: it could not be kept.
        """
        now_ms = SYSTEM_CLOCK.now_ms()
        put: dict[str, bytes] = {}
        for body, reason in list(refused)[-REJECTS_MAX:]:
            name = blake2b(body, digest_size=6, salt=bytes((kind,))).hexdigest()
            redacted = self._redaction.refused(body) if len(body) <= BODY_MAX_BYTES else b""
            reject = Reject(id=name, kind=kind, set_aside_ms=now_ms, reason=reason, size_bytes=len(redacted))
            put[_REJECT + name] = msgspec.json.encode(reject)
            put[_BODY + name] = redacted
        with self._lock:
            self._journal.commit(_OWNER, put=put)
            self._added += len(put) // 2
            self._added_bytes += sum(map(len, put.values()))
            if self._added >= _CHECK_EVERY or self._added_bytes >= _CHECK_EVERY_BYTES:
                self.drop(self._out_of_bounds())
                self._added = self._added_bytes = 0

    def drop(self, names: Iterable[str]) -> None:
        """Forget rejects."""
        keys = [prefix + name for name in names for prefix in (_REJECT, _BODY)]
        if keys:
            self._journal.commit(_OWNER, delete=keys)

    def retry(self, name: str, body: bytes, system_name: str) -> int:
        """Admit a reject again, corrected or not, forget it, and return the number of its entry.

        Raises:
            KeyError: there is no such reject.
            AdmissionError: it is refused again.
            JournalError: it could not be kept.
        """
        reject = self.get(name)
        if reject is None:
            raise KeyError(name)
        if reject.kind is Kind.OPENLINEAGE:
            body = self._redaction.admit(body)
        else:
            body, _ = check_records(body, self._redaction.bounds)
        seq = self._journal.append(reject.kind, body, system_name)
        self.drop([name])
        return seq

    def _out_of_bounds(self) -> list[str]:
        size_bytes, names = 0, []
        for count, reject in enumerate(reversed(self.all()), 1):
            size_bytes += reject.size_bytes
            if count > REJECTS_MAX or size_bytes > BODIES_MAX_BYTES:
                names.append(reject.id)
        return names
