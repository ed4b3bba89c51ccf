"""Events and facets of OpenLineage as JSON, for programs that do not load the OpenLineage client."""

from __future__ import annotations

import os
import uuid
from datetime import UTC, datetime
from typing import Final

from .event import PRODUCER

OPENLINEAGE_SPEC: Final = "https://openlineage.io/spec"
RUN_EVENT_SCHEMA: Final = f"{OPENLINEAGE_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"

_VERSION_7: Final = 0x7000 << 64 | 0x8000 << 48
_RANDOM_BITS: Final = 0x0FFF << 64 | 0x3FFF << 48 | 0xFFFF_FFFF_FFFF


def standard_facet(version: str, name: str, /, **members: object) -> dict[str, object]:
    """A facet of OpenLineage's own, of a version of its schema."""
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{OPENLINEAGE_SPEC}/facets/{version}/{name}.json#/$defs/{name}",
        **members,
    }


def instant(epoch_ms: int) -> str:
    """An instant as events have it, in UTC."""
    seconds, ms = divmod(epoch_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ms:03}Z"


def new_run_id(now_ms: int) -> str:
    """A new id of a run: a UUIDv7 (RFC 9562), which begins with the time of day, epoch milliseconds."""
    random = int.from_bytes(os.urandom(16)) & _RANDOM_BITS
    return str(uuid.UUID(int=now_ms << 80 | _VERSION_7 | random))
