"""One entry of the journal."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Kind(IntEnum):
    """What the body of an entry holds."""

    OPENLINEAGE = 0
    """One OpenLineage event, JSON."""
    PROVENANCE = 1
    """A JSON array of DeltaFi provenance records."""
    MARK = 2
    """``settle``, ``flush`` or ``retry:…``: every projection reads it at the same place of the sequence.

    A projection ignores a mark that it does not know.
    """


class Entry(msgspec.Struct, frozen=True):
    """One entry of the journal.

    Attributes:
        seq: its place in the sequence, from 1.
        received_ms: when it was accepted, epoch milliseconds.
        system_name: the name stamped on records that carry none.
        body: the bytes as accepted; empty if they are damaged.
        damage: what happened to the bytes in the journal, in one sentence; None: they are as accepted.
        program: the process that submitted it, a `Program` as text; None if that is not known.
    """

    seq: int
    received_ms: int
    kind: Kind
    system_name: str
    body: bytes
    damage: str | None = None
    program: str | None = None

    @property
    def is_flush(self) -> bool:
        """Whether it is the mark of a flush."""
        return self.kind is Kind.MARK and self.body == b"flush"
