"""Which files a file came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .overrides import read_sayings
from .standard import read_dependencies

if TYPE_CHECKING:
    from .event import RunEvent


def parents_of(event: RunEvent) -> tuple[str, ...]:
    """Return the dids of all files that the event's file came from, each once, the record's parent first.

    Of an event with the facet `waybill_deltaFile` these are its `parentDid`, and the runs upstream in the
    standard facet `jobDependencies`, which names all files that were joined. Other senders describe by
    `jobDependencies` what a job waits for, so their events have one parent at most: the `parent_did` that
    they set for their record, else the run of the standard facet `parent`.
    """
    facets = event.run.facets
    if facets is None:
        return ()
    if facets.delta_file is not None:
        upstream = read_dependencies(facets.job_dependencies).upstream or ()
        joined = [one.run.runId for one in upstream if one.run is not None]
        return tuple(dict.fromkeys(did for did in (facets.delta_file.parent_did, *joined) if did))
    said = [saying for saying in read_sayings(facets) if saying.is_field and saying.key == "parent_did"]
    if said:
        return (max(said, key=lambda saying: (saying.by_property, saying.value)).value,)
    return () if facets.parent is None else (facets.parent.run.runId,)
