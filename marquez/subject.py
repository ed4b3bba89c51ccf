"""The subject of an event, which decides the order in which events reach the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from waybill.facets import SEVERITY, JobEvent, RunEvent

if TYPE_CHECKING:
    from waybill.facets import Event


class Subject(NamedTuple):
    """The subject of an event; events with the same key reach the backend in journal order.

    Attributes:
        key: its run; for a JobEvent its job; for a DatasetEvent its dataset.
        is_end: whether it is a terminal event.
    """

    key: str
    is_run: bool = False
    is_end: bool = False


def subject_of(event: Event | None, seq: int) -> Subject:
    """The subject of the event in an entry; the entry itself if it cannot be read."""
    if event is None:
        return Subject(f"entry {seq}")
    if isinstance(event, RunEvent):
        return Subject(f"run {event.run.runId}", is_run=True, is_end=event.eventType in SEVERITY)
    kind, named = ("job", event.job) if isinstance(event, JobEvent) else ("dataset", event.dataset)
    return Subject(f"{kind} {named.namespace} {named.name}")
