"""The standard facets of datasets and jobs (https://openlineage.io/spec/facets), as far as they are read.

A facet that does not follow its schema says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .dids import canonicalize_dids
from .event import DatasetName, Job, Symlink, read_facet

if TYPE_CHECKING:
    from .event import RunJob

NOTES_MAX_BYTES: Final = 16 * 1024
"""A larger facet is not repeated with each job of a flow, as `JobNotes` are."""


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody who is responsible for a dataset or a job."""

    name: str
    type: str | None = None


class Tag(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tag of a job, of a dataset or of its column `field`; from YAML, its value may be no text."""

    key: str
    value: str | bool | int | float = "true"
    source: str | None = None
    field: str | None = None

    @property
    def text(self) -> str:
        """The value as a text."""
        return self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()


class SchemaField(msgspec.Struct, frozen=True):
    """A column, which may have others in it."""

    name: str
    type: str | None = None
    fields: tuple[SchemaField, ...] | None = None


class Facet(msgspec.Struct, frozen=True):
    """What is read of a facet of a dataset or a job; each has only some of these."""

    owners: tuple[Owner, ...] | None = None
    tags: tuple[Tag, ...] | None = None
    fields: tuple[SchemaField, ...] | None = None
    query: str | None = None
    description: str | None = None
    identifiers: tuple[Symlink, ...] | None = None
    name: str | None = None
    uri: str | None = None
    version: str | None = msgspec.field(default=None, name="datasetVersion")
    change: str | None = msgspec.field(default=None, name="lifecycleStateChange")
    previous: DatasetName | None = msgspec.field(default=None, name="previousIdentifier")


class DependencyRun(msgspec.Struct, frozen=True, gc=False):
    """A run that another one depends on; its id has the canonical form."""

    runId: str  # noqa: N815 - OpenLineage's own name

    def __post_init__(self) -> None:
        """Spell the id in one way."""
        canonicalize_dids(self, "runId")


class Dependency(msgspec.Struct, frozen=True, gc=False):
    """A job that another one waits for or the like, or a run of it."""

    job: Job | None = None
    run: DependencyRun | None = None


class JobDependencies(msgspec.Struct, frozen=True, gc=False):
    """The run facet `jobDependencies`."""

    upstream: tuple[Dependency, ...] | None = None
    downstream: tuple[Dependency, ...] | None = None


class JobNotes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the facets of a job say of it, beside its datasets."""

    documentation: str = ""
    owners: tuple[Owner, ...] = ()
    tags: tuple[Tag, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.documentation or self.owners or self.tags)

    def described(self, says: str) -> str:
        """A job's description: a sentence, the job's own documentation, and its owners."""
        says = f"{says} {self.documentation}" if self.documentation else says
        return f"{says} Owners: {', '.join(owner.name for owner in self.owners)}." if self.owners else says


def read_standard(facet: msgspec.Raw | bytes | str) -> Facet:
    """Read any of the facets."""
    return read_facet(_FACET, facet) or _NONE


def read_dependencies(facet: msgspec.Raw) -> JobDependencies:
    """Read the run facet `jobDependencies`."""
    return read_facet(_DEPENDENCIES, facet) or _NO_DEPENDENCIES


def read_members(facets: msgspec.Raw | bytes) -> dict[str, msgspec.Raw]:
    """The facets of a dataset or a job, each undecoded."""
    return read_facet(_MEMBERS, facets) or {}


def job_notes_of(job: RunJob) -> JobNotes:
    """What the facets of an event's job say of it."""
    facets = job.read_facets()
    notes = (facets.documentation, facets.ownership, facets.tags)
    said, owned, tagged = (read_standard(one if len(one) <= NOTES_MAX_BYTES else b"") for one in notes)
    tags = tuple(Tag(one.key, one.text, one.source) for one in tagged.tags or ())
    return JobNotes(said.description or "", owned.owners or (), tags)


_FACET: Final = msgspec.json.Decoder(Facet)
_DEPENDENCIES: Final = msgspec.json.Decoder(JobDependencies)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_NONE: Final = Facet()
_NO_DEPENDENCIES: Final = JobDependencies()
