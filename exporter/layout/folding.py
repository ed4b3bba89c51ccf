"""Folding entries into records as the layout does, also for those who ask before it has come so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from waybill.facets import UNREADABLE
from waybill.facets.sizes import made_chars
from waybill.transport.journal import key_of_run

from ..stored_records import decode_entries
from .forgotten_runs import ForgottenRuns
from .runs import UnsettledRuns

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal, StateStore

_DAY_MS: Final = 86_400_000
_SMALL_BYTES: Final = 2**16  # whose events make no large records
_MADE_CHARS_MAX: Final = 2**29
"""The maximum size of the records that one event makes, in characters; admission's default is far lower."""


def load_runs(
    journal: Journal, settings: Settings, store: StateStore | None = None, *, settle_ms: int
) -> UnsettledRuns:
    """The runs in progress of a home, given its agreed settings; their state is in its journal, or a store.

    An ended run settles `settle_ms` after its last event.
    """
    store = store or journal
    return UnsettledRuns(
        store,
        ForgottenRuns(store, settings.root, journal.nodes, settings.system_name),
        rule=settings.annotation_rule,
        settle_ms=settle_ms,
        retain_ms=int(settings.journal_retain_days * _DAY_MS),
    )


def fold_entries(
    runs: UnsettledRuns,
    entries: Sequence[Entry],
    settings: Settings,
    on_error: Callable[[Entry, Exception], None],
) -> pa.Table:
    """Fold the entries' run events, and return the records that entries contain themselves."""
    found = decode_entries(
        entries, system_name=settings.system_name, rule=settings.annotation_rule, on_error=on_error
    )
    runs.load(key_of_run(event.run.runId) for event in found.events if event is not None)
    for entry, event in zip(entries, found.events, strict=True):
        runs.settle_until(entry.received_ms)
        if entry.is_flush:
            runs.settle_all()
        elif event is not None:
            stamped = entry.system_name or settings.system_name
            try:
                if len(entry.body) > _SMALL_BYTES and made_chars(event) > _MADE_CHARS_MAX:
                    raise ValueError("its records would be too large; send fewer outputs in one event")
                runs.add_event(event, system_name=stamped, received_ms=entry.received_ms)
            except UNREADABLE as error:
                on_error(entry, error)
    return found.records
