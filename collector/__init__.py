"""The collector: any program can send to it over HTTP, and it acknowledges only durable events.

Needs the extra `collector`, which installs granian.
"""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .intake import Reject as Reject, Rejects as Rejects
    from .keys import ApiKey as ApiKey, Keys as Keys, Role as Role
    from .server import serve as serve

_PACKAGES = {
    "waybill.collector.intake": {"Reject", "Rejects"},
    "waybill.collector.keys": {"ApiKey", "Keys", "Role"},
    "waybill.collector.server": {"serve"},
}
"""Where each name comes from."""

__all__ = [name for names in _PACKAGES.values() for name in names]

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__, _PACKAGES)
