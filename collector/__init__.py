"""The collector: any program can send to it over HTTP, and it acknowledges only durable events.

Needs the extra `collector`, which installs granian.
"""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .keys import ApiKey as ApiKey, Keys as Keys, Role as Role
    from .server import serve as serve

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
