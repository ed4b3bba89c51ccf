"""The server process: granian, its workers, and the runner beside them."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .server import serve
    from .stopping import stop

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
