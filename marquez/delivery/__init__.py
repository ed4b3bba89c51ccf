"""Delivery: the projection that sends events to one backend, and the events that the backend refuses."""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .counters import Counters as Counters, counters_of as counters_of
    from .dead_letter_box import (
        OWED_PREFIX as OWED_PREFIX,
        DeadLetter as DeadLetter,
        dead_letter_body as dead_letter_body,
        dead_letters as dead_letters,
        drop_dead_letters as drop_dead_letters,
        retry_dead_letters as retry_dead_letters,
    )
    from .delivery import CONNECTIONS as CONNECTIONS, Delivery as Delivery, progress_of as progress_of

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
