"""What a pipeline says about its own record, through run tags and Spark properties.

Run tags named `waybill_<field>` and captured Spark properties named `spark.waybill.<field>` replace a field
of the derived record. Any other `waybill_<key>`, `spark.waybill.<key>` and every plain run tag becomes an
annotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from waybill.facets.causes import telling
from waybill.facets.record import FinalState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.facets.event import RunFacets

OVERRIDABLE = frozenset(
    {"did", "parent_did", "system_name", "data_source", "filename", "transforms", "data_sink", "final_state"}
)
"""The fields of a derived record that a tag or a property may replace."""

TAG_PREFIX = "waybill_"
PROPERTY_PREFIX = "spark.waybill."


class Saying(NamedTuple):
    """A value that a tag or a property gives to the field `key` if `is_field`, else to an annotation."""

    is_field: bool
    key: str
    value: str
    by_property: bool


class _Properties(msgspec.Struct):
    properties: dict[str, object] | None = None


class _Exception(msgspec.Struct):
    message: str | None = None


_PROPERTIES = msgspec.json.Decoder(_Properties)
_EXCEPTION = msgspec.json.Decoder(_Exception)


def read_sayings(facets: RunFacets) -> Iterator[Saying]:
    """Yield what the facets of one event say; a value that its field cannot hold is ignored."""
    for tag in (facets.tags.tags if facets.tags is not None else None) or ():
        ours = tag.key.startswith(TAG_PREFIX)
        key = tag.key.removeprefix(TAG_PREFIX)
        yield from _read(key, tag.value, may_override=ours, by_property=False)
    # Most events capture no property of ours, so look before decoding.
    if PROPERTY_PREFIX.encode() in bytes(facets.spark_properties):
        for name, value in _read_properties(facets.spark_properties).items():
            if name.startswith(PROPERTY_PREFIX) and isinstance(value, str):
                key = name.removeprefix(PROPERTY_PREFIX)
                yield from _read(key, value, may_override=True, by_property=True)


def _read(key: str, value: str, *, may_override: bool, by_property: bool) -> Iterator[Saying]:
    is_field = may_override and key in OVERRIDABLE
    if key and (not is_field or _is_valid(key, value)):
        yield Saying(is_field, key, value, by_property)


def _is_valid(field: str, value: str) -> bool:
    if field == "final_state":
        return value in FinalState.__members__
    return bool(split_transforms(value)) if field == "transforms" else bool(value)


def split_transforms(value: str) -> tuple[str, ...]:
    """Split a comma-separated list of transforms; blanks around names and empty names do not count."""
    return tuple(name for part in value.split(",") if (name := part.strip()))


def _read_properties(facet: msgspec.Raw) -> dict[str, object]:
    try:
        return _PROPERTIES.decode(facet).properties or {}
    except msgspec.ValidationError:
        return {}


def read_error_cause(facets: RunFacets) -> tuple[bool, str] | None:
    """Return the telling part of `errorMessage`, else of `spark.exception`, after whether it is of that."""
    if facets.error_message is not None and (cause := telling(facets.error_message.message)):
        return False, cause
    if not bytes(facets.spark_exception):
        return None
    try:
        message = _EXCEPTION.decode(facets.spark_exception).message
    except msgspec.ValidationError:
        return None
    cause = telling(message or "")
    return (True, cause) if cause else None
