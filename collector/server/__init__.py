"""The server process: granian, its workers, and the runner beside them."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .server import serve as serve
    from .stopping import stop as stop

_PACKAGES = {"waybill.collector.server.server": {"serve"}, "waybill.collector.server.stopping": {"stop"}}
"""Where each name comes from."""

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__, _PACKAGES)
