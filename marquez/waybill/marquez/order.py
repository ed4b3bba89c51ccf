"""Which events must reach the backend in the order of the journal: those with the same key."""

from __future__ import annotations

import msgspec


class _Named(msgspec.Struct):
    namespace: str = ""
    name: str = ""


class _Run(msgspec.Struct, rename="camel"):
    run_id: str = ""


class _Subject(msgspec.Struct):
    """The few members of an event that say what it is about; nothing else of it is decoded."""

    run: _Run | None = None
    job: _Named | None = None
    dataset: _Named | None = None


_DECODER = msgspec.json.Decoder(_Subject)


def order_key(body: bytes, seq: int) -> str:
    """The key of one event: its run; for a JobEvent its job; for a DatasetEvent its dataset.

    Args:
        body: one OpenLineage event as JSON.
        seq: its place in the journal, its key when it names none of these: it waits for no other then.
    """
    try:
        subject = _DECODER.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return f"entry {seq}"
    if subject.run is not None and subject.run.run_id:
        return f"run {subject.run.run_id}"
    for kind, named in (("job", subject.job), ("dataset", subject.dataset)):
        if named is not None and named.name:
            return f"{kind} {named.namespace} {named.name}"
    return f"entry {seq}"
