"""Which events must reach the backend in the order of the journal: those with the same key."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec


class Subject(NamedTuple):
    """What an event is about.

    Attributes:
        key: its run; for a JobEvent its job; for a DatasetEvent its dataset.
        is_run: whether it is about a run.
        ends: whether it says that its run has ended.
    """

    key: str
    is_run: bool = False
    ends: bool = False


class _Named(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Run(msgspec.Struct, rename="camel"):
    run_id: str = ""


class _Members(msgspec.Struct, rename="camel"):
    """The few members of an event that say what it is about; nothing else of it is decoded."""

    run: _Run | None = None
    job: _Named | None = None
    dataset: _Named | None = None
    event_type: object = None


_DECODER = msgspec.json.Decoder(_Members)
_ENDS: Final = frozenset({"COMPLETE", "ABORT", "FAIL"})


def subject_of(body: bytes, seq: int) -> Subject:
    """What one event is about.

    Args:
        body: one OpenLineage event as JSON.
        seq: its place in the journal, its key when it names none of these: it waits for no other then.
    """
    try:
        members = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return Subject(f"entry {seq}")
    if members.run is not None and members.run.run_id:
        # Marquez compares the type without regard to case.
        ends = str(members.event_type).upper() in _ENDS
        return Subject(f"run {members.run.run_id}", is_run=True, ends=ends)
    for kind, named in (("job", members.job), ("dataset", members.dataset)):
        if named is not None and named.name:
            return Subject(f"{kind} {named.namespace} {named.name}")
    return Subject(f"entry {seq}")
