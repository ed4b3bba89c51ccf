"""Marquez: sends events to the backend, and handles those that it refuses.

`open_deliveries` returns the projections that the runner runs; `probe` and `dead_letters` answer a person's
questions; `EventReader` reads run events back.
"""

from typing import TYPE_CHECKING

from waybill.facets.lazy import lazily as _lazily

if TYPE_CHECKING:
    from .backend import Backend as Backend, ProbeResult as ProbeResult, probe as probe
    from .delivery import (
        Counters as Counters,
        DeadLetter as DeadLetter,
        Delivery as Delivery,
        counters_of as counters_of,
        dead_letter_body as dead_letter_body,
        dead_letters as dead_letters,
        drop_dead_letters as drop_dead_letters,
        retry_dead_letters as retry_dead_letters,
    )
    from .readback import (
        EventReader as EventReader,
        MarquezReadError as MarquezReadError,
        MissingEvent as MissingEvent,
        MissingJob as MissingJob,
        Reconciliation as Reconciliation,
        reconcile as reconcile,
        reconcile_new as reconcile_new,
        repair as repair,
    )
    from .targets import open_deliveries as open_deliveries, open_reader as open_reader

if not TYPE_CHECKING:
    __getattr__ = _lazily(__name__)
