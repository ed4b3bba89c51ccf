"""What an event's own job facets say of it besides its edges: documentation, owners and tags.

They are the standard facets (https://openlineage.io/spec/facets: documentation, ownership, tags), as a client
puts them on each event, for example by ``tags`` in ``openlineage.yml``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from waybill.marquez.envelope import Envelope

T = TypeVar("T")

NOTES_MAX_BYTES: Final = 16 * 1024
"""Larger facets are ignored: what is stored of a job stays small."""


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody who answers for a job."""

    name: str
    type: str | None = None


class Tag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A word about a job, with its value."""

    key: str
    value: str = "true"
    source: str | None = None


class JobFacets(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a job.

    Attributes:
        documentation: what it is for.
        owners: who answers for it.
        tags: words about it.
    """

    documentation: str = ""
    owners: tuple[Owner, ...] = ()
    tags: tuple[Tag, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is known."""
        return bool(self.documentation or self.owners or self.tags)


class _Documentation(msgspec.Struct):
    description: str = ""


class _Ownership(msgspec.Struct):
    owners: tuple[Owner, ...] = ()


class _Tags(msgspec.Struct):
    tags: tuple[Tag, ...] = ()


class _Facets(msgspec.Struct):
    documentation: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    ownership: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    tags: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


def job_facets_of(envelope: Envelope) -> JobFacets:
    """What the job facets of an event say; a facet that does not follow its schema says nothing."""
    if envelope.job is None or not envelope.job.facets:
        return JobFacets()
    try:
        facets = msgspec.json.decode(envelope.job.facets, type=_Facets | None) or _Facets()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return JobFacets()
    return JobFacets(
        _read(facets.documentation, _Documentation()).description,
        _read(facets.ownership, _Ownership()).owners,
        _read(facets.tags, _Tags()).tags,
    )


def _read(raw: msgspec.Raw, nothing: T) -> T:
    if not 0 < len(raw) <= NOTES_MAX_BYTES:
        return nothing
    try:
        return msgspec.json.decode(raw, type=type(nothing))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return nothing
