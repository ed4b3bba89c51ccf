"""Which door answers what, and what role it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from waybill.collector.endpoints import (
    BATCH_PATH,
    LINEAGE_PATH,
    PROVENANCE_PATH,
    LineageDoors,
    ProvenanceDoors,
)
from waybill.collector.http import Answer, Door, Request, json_answer
from waybill.collector.keys import Role
from waybill.collector.openapi import description
from waybill.collector.page import HTML, page

if TYPE_CHECKING:
    from waybill.collector.endpoints import HealthDoors


class Way(NamedTuple):
    """A door, and the role that a key needs to open it; None: anybody may."""

    role: Role | None
    door: Door


Routes = Mapping[str, Mapping[str, Way]]
"""By path and method."""


def routes_of(lineage: LineageDoors, provenance: ProvenanceDoors, health: HealthDoors) -> Routes:
    """Every path of the collector."""
    return {
        LINEAGE_PATH: {"POST": Way(Role.EMIT, lineage.event)},
        BATCH_PATH: {"POST": Way(Role.EMIT, lineage.batch)},
        PROVENANCE_PATH: {"POST": Way(Role.EMIT, provenance.take)},
        f"{PROVENANCE_PATH}/query": {"GET": Way(Role.READ, provenance.query)},
        f"{PROVENANCE_PATH}/stats": {"GET": Way(Role.READ, provenance.stats)},
        f"{PROVENANCE_PATH}/flush": {"POST": Way(Role.ADMIN, provenance.flush)},
        "/health/live": {"GET": Way(None, health.live)},
        "/health/ready": {"GET": Way(None, health.ready)},
        "/metrics": {"GET": Way(Role.READ, health.metrics)},
        "/where": {"GET": Way(Role.READ, health.where)},
        "/openapi.json": {"GET": Way(None, _describe)},
        "/docs": {"GET": Way(None, _show)},
    }


async def _describe(_: Request) -> Answer:
    return json_answer(description())


async def _show(_: Request) -> Answer:
    headers = [
        ("content-type", HTML),
        ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ]
    return Answer(HTTPStatus.OK, headers, page(description()).encode())
