"""The collector: anything can send to it over HTTP, and it acknowledges only what is durable.

Needs the extra `collector`, which brings granian.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from waybill.collector.intake import Reject as Reject, Rejects as Rejects
    from waybill.collector.keys import ApiKey as ApiKey, Keys as Keys, Role as Role
    from waybill.collector.server import serve as serve

_PACKAGES = {
    "waybill.collector.intake": {"Reject", "Rejects"},
    "waybill.collector.keys": {"ApiKey", "Keys", "Role"},
    "waybill.collector.server": {"serve"},
}
"""Where each name comes from; its package is loaded when the name is asked for."""

__all__ = [name for names in _PACKAGES.values() for name in names]


def __getattr__(name: str) -> object:
    from importlib import import_module

    for package, names in _PACKAGES.items():
        if name in names:
            return getattr(import_module(package), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
