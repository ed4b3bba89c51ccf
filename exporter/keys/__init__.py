"""The keys of a root: which of its files hold what is asked for."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .listing import Keys
    from .making import keep_step
    from .projection import PROJECTION, open_keys

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
