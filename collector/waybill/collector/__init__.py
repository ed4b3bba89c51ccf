"""The HTTP door: what anything can send to, and what is acknowledged only once it is durable.

Needs the extra `collector`, which brings granian.
"""

from __future__ import annotations

from waybill.collector.rejects import Reject, Rejects
from waybill.collector.server import serve

__all__ = ["Reject", "Rejects", "serve"]
