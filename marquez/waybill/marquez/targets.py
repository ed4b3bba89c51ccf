"""Which backends the settings name, each with a delivery of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.marquez.client import Backend
from waybill.marquez.delivery import Delivery

if TYPE_CHECKING:
    from waybill.transport.journal import Journal
    from waybill.transport.settings import Settings


def open_delivery(journal: Journal, settings: Settings) -> Delivery | None:
    """The projection ``marquez`` of the entry-point group ``waybill.projections``; None without a backend."""
    if settings.marquez_url is None:
        return None
    return Delivery(journal, Backend(settings.marquez_url, settings.marquez_api_key))
