"""An event's envelope: its few members that decide how it is delivered, decoded once.

What only some readers need is kept undecoded, and a member of it that is malformed concerns only them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from waybill.facets import INFERRED_FACET


class Subject(NamedTuple):
    """What an event is about; events with the same key reach the backend in the order of the journal.

    Attributes:
        key: its run; for a JobEvent its job; for a DatasetEvent its dataset.
        ends: whether it is the run's terminal event.
        inferred: whether Waybill inferred that; the run's own terminal event counts for more.
    """

    key: str
    is_run: bool = False
    ends: bool = False
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
        """Whether Waybill inferred what the event says."""
        if self.run is None or _INFERRED not in bytes(self.run.facets):
            return False
        try:
            return _MARKED.decode(self.run.facets).inferred is not None
        except (msgspec.MsgspecError, RecursionError):
            return False

    def subject(self, seq: int) -> Subject:
        """What the event is about; `seq` stands for one that names neither run, job nor dataset."""
        if self.run is not None and self.run.run_id:
            ends = self.type_name in _ENDS
            inferred = ends and self.is_inferred
            return Subject(f"run {self.run.run_id}", is_run=True, ends=ends, inferred=inferred)
        for kind, named in (("job", self.job), ("dataset", self.dataset)):
            if named is not None and named.name:
                return Subject(f"{kind} {named.namespace} {named.name}")
        return Subject(f"entry {seq}")


_ENDS: Final = frozenset({"COMPLETE", "ABORT", "FAIL"})
_INFERRED: Final = INFERRED_FACET.encode()
_MARKED: Final = msgspec.json.Decoder(_Marked)
_DECODER: Final = msgspec.json.Decoder(Envelope)


def envelope_of(body: bytes) -> Envelope:
    """The envelope of one event; an empty one where the body cannot be read."""
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return Envelope()
