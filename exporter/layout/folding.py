"""Folding entries into records as the layout does, also for those who ask before it has come so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from waybill.facets import UNREADABLE
from waybill.facets.sizes import made_chars

from ..archive import filed_ranges
from ..stored_records import decode_entries
from .archived_runs import ArchivedRuns
from .forgotten_runs import ForgottenRuns
from .runs import UnsettledRuns

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.transport.config import Settings
    from waybill.transport.journal import Entry, Journal

FOLDED: Final = "folded"
"""The state key of the first and last entry that were all folded, without a gap."""

_DAY_MS: Final = 86_400_000
_SMALL_BYTES: Final = 2**16  # whose events make no large records
_MADE_CHARS_MAX: Final = 2**29
"""The maximum size of the records that one event makes, in characters; admission's default is far lower."""


class RunStore(Protocol):
    """The stored state of the runs in progress."""

    def with_prefix(self, prefix: str) -> Mapping[str, bytes]:
        """The state of all keys with a prefix."""

    def get(self, key: str) -> bytes | None:
        """The state of a key."""

    def get_many(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """The state of some keys; those that have none are left out."""

    def put(self, put: Mapping[str, bytes]) -> None:
        """Store state to which nothing refers yet."""


def load_runs(
    journal: Journal,
    settings: Settings,
    store: RunStore,
    *,
    settle_ms: int,
    folded_from: Callable[[], int],
) -> UnsettledRuns:
    """The runs in progress of a home.

    Args:
        journal: the home's journal.
        settings: its agreed settings.
        store: their stored state.
        settle_ms: how long after its last event an ended run settles.
        folded_from: the first entry from which on every entry was folded; asked at the end of a batch.
    """
    archived = ArchivedRuns(
        settings.root,
        journal.nodes,
        settings.system_name,
        filed=lambda: filed_ranges(journal),
        folded_from=folded_from,
    )
    return UnsettledRuns(
        store.with_prefix,
        store.get,
        store.put,
        rule=settings.annotation_rule,
        settle_ms=settle_ms,
        retain_ms=int(settings.journal_retain_days * _DAY_MS),
        forgotten=ForgottenRuns(store.get_many, archived.began_ms),
        archived=archived,
    )


def folded_without_gap_from(stored: bytes | None, first_seq: int) -> int:
    """The first of the entries that are all folded, up to the batch that begins with the given entry.

    There is a gap if the projection was off for so long that the journal has removed entries. `stored` is the
    state of `FOLDED`.
    """
    if stored is None:
        return first_seq
    folded_from, upto = _FOLDED_DECODER.decode(stored)
    return folded_from if first_seq <= upto + 1 else first_seq


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
    for entry, event in zip(entries, found.events, strict=True):
        runs.settle_until(entry.received_ms)
        if entry.is_flush:
            runs.settle_all(entry.received_ms)
        elif event is not None:
            stamped = entry.system_name or settings.system_name
            try:
                if len(entry.body) > _SMALL_BYTES and made_chars(event) > _MADE_CHARS_MAX:
                    raise ValueError("its records would be too large; send fewer outputs in one event")
                runs.add_event(event, system_name=stamped, received_ms=entry.received_ms)
            except UNREADABLE as error:
                on_error(entry, error)
    return found.records


_FOLDED_DECODER: Final = msgspec.msgpack.Decoder(tuple[int, int])
