# ruff: noqa: N815 - the client serialises attributes by their name, which in a facet is camelCase.
"""The run facet that carries a file's provenance through OpenLineage.

Its JSON Schema is in the folder `schemas` beside this module.
"""

from __future__ import annotations

import re
from typing import ClassVar

import attrs
from openlineage.client.generated.base import RunFacet

from .event import parse_instant_us
from .own_facet import OwnFacet
from .record import FinalState

# RFC 3339, which JSON Schema calls date-time. Reading may be more lenient, writing is not.
_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")


def _check_did(_facet: object, attribute: attrs.Attribute[str], value: str) -> None:
    if not value:
        raise ValueError(f"{attribute.name} is empty: give the file's identity, for example a UUID")


def _check_state(_facet: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if value is not None and value not in FinalState.__members__:
        raise ValueError(f"{attribute.name} is {value!r}: use one of {', '.join(FinalState)}")


def _check_instant(_facet: object, attribute: attrs.Attribute[str | None], value: str | None) -> None:
    if value is None:
        return
    try:
        readable = _DATE_TIME.fullmatch(value) is not None and parse_instant_us(value) > 0
    except ValueError:
        readable = False
    if not readable:
        raise ValueError(
            f"{attribute.name} is {value!r}: write an instant after 1970 like 2026-01-31T12:00:00.000Z"
        )


@attrs.define(kw_only=True)
class WaybillDeltaFileRunFacet(OwnFacet, RunFacet):
    """A file's passage: what it is, where it came from, what was done to it, where and how it ended.

    On a terminal event it is a complete provenance record; absent fields are filled from the event.

    Raises:
        ValueError: a value that its schema does not allow.
    """

    did: str = attrs.field(validator=_check_did)
    """The file's identity."""
    parentDid: str | None = None
    """The file it was split from."""
    systemName: str | None = None
    """The instance that processes it."""
    dataSource: str | None = None
    """The flow that it came from."""
    filename: str | None = None
    """Its name."""
    transforms: list[str] = attrs.field(factory=list)
    """The flows that changed it on this path, in order."""
    dataSink: str | None = None
    """The flow that it left through."""
    finalState: str | None = attrs.field(default=None, validator=_check_state)
    """How this path ended, a `FinalState`; absent while it has not."""
    created: str | None = attrs.field(default=None, validator=_check_instant)
    """When the file began, an ISO 8601 instant."""
    completed: str | None = attrs.field(default=None, validator=_check_instant)
    """When this path ended, an ISO 8601 instant."""
    annotations: dict[str, str] | None = None
    """Notes about it."""

    _secret: ClassVar[frozenset[str]] = frozenset({"annotations"})
