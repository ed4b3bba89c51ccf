"""The HTTP door: what anything can send to, and what is acknowledged only once it is durable.

Needs the extra `collector`, which brings granian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.collector.keys import ApiKey, Keys, Role
from waybill.collector.rejects import Reject, Rejects

if TYPE_CHECKING:
    from waybill.collector.server import serve

__all__ = ["ApiKey", "Keys", "Reject", "Rejects", "Role", "serve"]


def __getattr__(name: str) -> object:
    # Who only looks at keys and rejects needs no server.
    if name == "serve":
        from waybill.collector import server

        return server.serve
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
