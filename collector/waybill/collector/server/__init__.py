"""The server process: granian, its workers, and the runner beside them."""

from __future__ import annotations

from waybill.collector.server.server import serve
from waybill.collector.server.stopping import stop

__all__ = ["serve", "stop"]
