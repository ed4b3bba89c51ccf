"""The values that a pipeline sets for its own record: run tags, Spark properties and Spark job tags.

Run tags named `waybill_<field>` and captured Spark properties named `spark.waybill.<field>` replace a field
of the derived record. Any other `waybill_<key>`, `spark.waybill.<key>` and every plain run tag becomes an
annotation. A Spark job tag `waybill:<key>=<value>`, if these are captured, counts as a run tag with that key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .causes import announces, telling
from .dids import canonical_did
from .event import read_facet
from .record import FinalState

if TYPE_CHECKING:
    from .event import ErrorMessage, RunFacets, SparkException

OVERRIDABLE = frozenset(
    {"did", "parent_did", "system_name", "data_source", "filename", "transforms", "data_sink", "final_state"}
)
"""The fields of a derived record that a tag or a property may replace."""

_DIDS = frozenset({"did", "parent_did"})

_CLIENT = "OPENLINEAGE_CLIENT"
"""The source of tags that OpenLineage's client adds to each run about itself, such as its version."""

TAG_PREFIX = "waybill_"
PROPERTY_PREFIX = "spark.waybill."
JOB_TAGS = "spark.job.tags"
"""The property with the tags of a Spark job, separated by commas."""
JOB_TAG_PREFIX = "waybill:"
"""The prefix of the key in our job tags; Spark Connect puts its own text before that."""


class Saying(NamedTuple):
    """A value that a tag or a property sets for the field `key` if `is_field`, else for an annotation."""

    is_field: bool
    key: str
    value: str
    by_property: bool


class _Properties(msgspec.Struct):
    properties: dict[str, object] | None = None


_PROPERTIES = msgspec.json.Decoder(_Properties)


def read_sayings(facets: RunFacets) -> Iterator[Saying]:
    """Yield the values in the facets of one event; values that are invalid for their field are ignored."""
    for tag in (facets.tags.tags if facets.tags is not None else None) or ():
        if tag.source != _CLIENT:
            yield from _read_tag(tag.key, tag.value)
    # Most events capture none of our properties, so check before decoding.
    properties = bytes(facets.spark_properties)
    if PROPERTY_PREFIX.encode() in properties or JOB_TAG_PREFIX.encode() in properties:
        captured = read_facet(_PROPERTIES, facets.spark_properties) or _Properties()
        for name, value in (captured.properties or {}).items():
            if name.startswith(PROPERTY_PREFIX) and isinstance(value, str):
                key = name.removeprefix(PROPERTY_PREFIX)
                yield from _read(key, value, may_override=True, by_property=True)
            elif name == JOB_TAGS and isinstance(value, str):
                for key, said in read_job_tags(value.split(",")):
                    yield from _read_tag(key, said)


def job_tag(key: str, value: str) -> str:
    """Return the tag that sets this for a Spark job; it must not contain a comma, nor its key ``=``."""
    return f"{JOB_TAG_PREFIX}{key}={value}"


def read_job_tags(tags: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield key and value of our tags among those of a Spark job."""
    for tag in tags:
        _, mark, said = tag.partition(JOB_TAG_PREFIX)
        key, equals, value = said.partition("=")
        if mark and equals:
            yield key, value


def _read_tag(key: str, value: str) -> Iterator[Saying]:
    ours = key.startswith(TAG_PREFIX)
    yield from _read(key.removeprefix(TAG_PREFIX), value, may_override=ours, by_property=False)


def _read(key: str, value: str, *, may_override: bool, by_property: bool) -> Iterator[Saying]:
    is_field = may_override and key in OVERRIDABLE
    if "\0" in key or "\0" in value:  # which backends cannot store
        return
    if key and (not is_field or _is_valid(key, value)):
        is_did = is_field and key in _DIDS
        yield Saying(is_field, key, canonical_did(value) if is_did else value, by_property)


def _is_valid(field: str, value: str) -> bool:
    if field == "final_state":
        return value in FinalState.__members__
    return bool(split_transforms(value)) if field == "transforms" else bool(value)


def split_transforms(value: str) -> tuple[str, ...]:
    """Split a comma-separated list of transforms; spaces around names and empty names are ignored."""
    return tuple(name for part in value.split(",") if (name := part.strip()))


def read_error_cause(facets: RunFacets) -> tuple[bool, str] | None:
    """Return whether the cause is from `spark.exception` rather than `errorMessage`, and the cause."""
    if facets.error_message is not None and (cause := _cause_in(facets.error_message)):
        return False, cause
    exception = facets.read_exception()
    cause = "" if exception is None else _cause_in(exception)
    return (True, cause) if cause else None


def _cause_in(error: ErrorMessage | SparkException) -> str:
    """The cause in the message; in the stack trace, if the message is missing or only announces a reason."""
    message, trace = error.message or "", error.stack_trace or ""
    return telling(trace) if trace and (not message or announces(message)) else telling(message)
