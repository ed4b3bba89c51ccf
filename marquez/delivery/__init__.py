"""Delivery: the projection that sends events to one backend, and the events that the backend refuses."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .counters import Counters, counters_of
    from .dead_letter_box import (
        OWED_PREFIX,
        DeadLetter,
        dead_letter_body,
        dead_letters,
        drop_dead_letters,
        retry_dead_letters,
    )
    from .delivery import CONNECTIONS, Delivery, progress_of

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
