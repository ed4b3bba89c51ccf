"""Which files a file came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .dids import canonicalize_dids
from .event import read_facet
from .overrides import read_sayings

if TYPE_CHECKING:
    from .event import RunEvent


class _UpstreamRun(msgspec.Struct, frozen=True, gc=False):
    runId: str  # noqa: N815 - OpenLineage's own name

    def __post_init__(self) -> None:
        canonicalize_dids(self, "runId")


class _Upstream(msgspec.Struct, frozen=True, gc=False):
    run: _UpstreamRun | None = None


class _JobDependencies(msgspec.Struct, frozen=True, gc=False):
    """The standard `jobDependencies` run facet, as far as it names runs."""

    upstream: tuple[_Upstream, ...] = ()


_JOB_DEPENDENCIES: Final = msgspec.json.Decoder(_JobDependencies)


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
        first = facets.delta_file.parent_did
        named = [first, *_upstream(facets.job_dependencies)]
        return tuple(dict.fromkeys(did for did in named if did))
    said = [saying for saying in read_sayings(facets) if saying.is_field and saying.key == "parent_did"]
    if said:
        return (max(said, key=lambda saying: (saying.by_property, saying.value)).value,)
    return () if facets.parent is None else (facets.parent.run.runId,)


def _upstream(facet: msgspec.Raw) -> list[str]:
    dependencies = read_facet(_JOB_DEPENDENCIES, facet) or _JobDependencies()
    return [one.run.runId for one in dependencies.upstream if one.run is not None]
