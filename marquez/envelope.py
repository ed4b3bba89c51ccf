"""An event's envelope: the few members that decide how it is delivered, decoded once.

Members that only some readers need stay undecoded, so a malformed one affects only those readers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from waybill.facets import INFERRED_FACET, SEVERITY, EventType


class Subject(NamedTuple):
    """The subject of an event; events with the same key reach the backend in journal order.

    Attributes:
        key: its run; for a JobEvent its job; for a DatasetEvent its dataset.
        severity: of a terminal event, as `waybill.facets.SEVERITY` has it; None for any other.
        inferred: whether Waybill inferred that; the run's own terminal event counts for more.
    """

    key: str
    is_run: bool = False
    severity: int | None = None
    inferred: bool = False


class _Named(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Job(_Named):
    facets: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Run(msgspec.Struct, rename="camel"):
    run_id: str = ""
    facets: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class _Marked(msgspec.Struct):
    inferred: object = msgspec.field(default=None, name=INFERRED_FACET)


class Envelope(msgspec.Struct, rename="camel"):
    """The members of an event that delivery reads."""

    run: _Run | None = None
    job: _Job | None = None
    dataset: _Named | None = None
    event_type: object = None
    event_time: object = None
    inputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    outputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)

    @property
    def type_name(self) -> str:
        """The event type in capitals: Marquez compares it without regard to case."""
        return str(self.event_type or "").upper()

    @property
    def is_inferred(self) -> bool:
        """Whether Waybill inferred the event."""
        if self.run is None or _INFERRED not in bytes(self.run.facets):
            return False
        try:
            return _MARKED.decode(self.run.facets).inferred is not None
        except (msgspec.MsgspecError, RecursionError):
            return False

    def subject(self, seq: int) -> Subject:
        """The subject of the event; `seq` stands for one that names neither run, job nor dataset."""
        if self.run is not None and self.run.run_id:
            severity = SEVERITY.get(EventType(self.type_name))
            inferred = severity is not None and self.is_inferred
            return Subject(f"run {self.run.run_id}", is_run=True, severity=severity, inferred=inferred)
        for kind, named in (("job", self.job), ("dataset", self.dataset)):
            if named is not None and named.name:
                return Subject(f"{kind} {named.namespace} {named.name}")
        return Subject(f"entry {seq}")


_INFERRED: Final = INFERRED_FACET.encode()
_MARKED: Final = msgspec.json.Decoder(_Marked)
_DECODER: Final = msgspec.json.Decoder(Envelope)


def envelope_of(body: bytes) -> Envelope:
    """The envelope of one event; an empty one if the body cannot be read."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return Envelope()
