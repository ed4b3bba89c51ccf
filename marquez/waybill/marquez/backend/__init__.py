"""A backend, and how to talk to one: over HTTP or Kafka, and what its answers mean."""

from __future__ import annotations

from waybill.marquez.backend.answers import Answer, Verdict, explain, setting_of
from waybill.marquez.backend.client import (
    LINEAGE_PATH,
    Backend,
    ProbeResult,
    Target,
    base_url,
    open_session,
    probe,
    shown,
)
from waybill.marquez.backend.kafka import KafkaTarget

__all__ = [
    "LINEAGE_PATH",
    "Answer",
    "Backend",
    "KafkaTarget",
    "ProbeResult",
    "Target",
    "Verdict",
    "base_url",
    "explain",
    "open_session",
    "probe",
    "setting_of",
    "shown",
]
