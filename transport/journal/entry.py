"""One entry of the journal."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from waybill.facets import UNREADABLE, Event, RunEvent, decode_event

from .begun import BegunTransforms, decode_begun

RECEIPT_PATTERN: Final = "^([0-9a-f]+)-([1-9][0-9]{0,17})$"


class Receipt(NamedTuple):
    """Where an entry is: the journal's node, and the entry's number there."""

    node: str
    seq: int

    def __str__(self) -> str:
        return f"{self.node}-{self.seq}"

    @classmethod
    def parse(cls, text: str) -> Receipt | None:
        """Parse a receipt; None if the text is not one."""
        found = re.fullmatch(RECEIPT_PATTERN, text)
        return cls(found[1], int(found[2])) if found else None


class Kind(IntEnum):
    """What the body of an entry holds."""

    OPENLINEAGE = 0
    """One OpenLineage event, JSON."""
    PROVENANCE = 1
    """A JSON array of DeltaFi provenance records."""
    MARK = 2
    """``settle``, ``flush``, ``retry:…`` or ``transforms:…``; all projections read it at the same place.

    A projection ignores a mark that it does not know.
    """


def event_in(kind: Kind, body: bytes) -> Event | None:
    """The OpenLineage event in the body of an entry; None if it contains none, or one that is unreadable."""
    if kind is not Kind.OPENLINEAGE:
        return None
    try:
        return decode_event(body)
    except UNREADABLE:
        return None


class Entry(msgspec.Struct, frozen=True, dict=True):
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

    @cached_property
    def event(self) -> Event | None:
        """The OpenLineage event in it, decoded once; None if it contains none, or one that is unreadable."""
        return event_in(self.kind, self.body)

    @property
    def run_event(self) -> RunEvent | None:
        """The same, if it is an event of a run."""
        return self.event if isinstance(self.event, RunEvent) else None

    @property
    def begun_transforms(self) -> BegunTransforms | None:
        """The transforms that it notes as begun; None if it is no such note."""
        return decode_begun(self.body) if self.kind is Kind.MARK else None

    @property
    def is_flush(self) -> bool:
        """Whether it is the mark of a flush."""
        return self.kind is Kind.MARK and self.body == b"flush"
