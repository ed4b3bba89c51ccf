"""The stored state of the layout's runs in progress, and how others read it."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import EVIDENCE, ProvenanceRecord, RunState
from waybill.facets.folding import ParentSeen
from waybill.facets.spark_writes import LISTENER_ONLY

from ..names import LAYOUT

if TYPE_CHECKING:
    from waybill.transport.journal import Journal

SETTLE_S: Final = 10.0
"""A derived run has settled when it got no event for this long after its end."""

# State keys. A run's part of them is its id; see `key_of`.
RUN: Final = "run:"  # of the runs
PIECE: Final = "piece:"  # of the pieces beside a run's own row: run, number of the piece, number of the row
DUE: Final = "due:"  # of the runs that ended and have not settled

PLAIN_SPARK: Final = "plain spark"
"""The state key that is there once a record was written that `rests_on_listener`."""

ROW_BYTES: Final = 2**20
"""The size of a piece's rows."""

_KEY_CHARS_MAX: Final = 512
"""Longer ids are hashed."""

_HASHED: Final = "#"
_RUN_BYTES_MAX: Final = 160 * 2**20  # a larger run gets no further outputs, because it is folded in memory
_OUTPUT_BYTES: Final = 200  # the size of an output without its name, which is counted by its bytes


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A part of a run's state, encoded, in its own rows."""

    number: int
    size_bytes: int
    outputs: int = 0

    def keys(self, key: str) -> list[str]:
        """The keys of the piece's rows."""
        rows = -(-self.size_bytes // ROW_BYTES)
        return [f"{PIECE}{key}:{self.number}:{row}" for row in range(rows)]


class RunProgress(msgspec.Struct, array_like=True):
    """The stored state of one run.

    Attributes:
        touched_ms: when its last entry was received.
        state: the folded state of its last events. None, with no pieces: an event carried the facet, and
            nothing else counts.
        pieces: the state of its earlier events, largest piece first.
        written: how many pieces its written records follow from; one more means from `state` too.
        ended: whether a terminal event is in the pieces.
        parent: the run that started it, according to the pieces.
    """

    touched_ms: int
    state: RunState | None
    pieces: list[Piece] = []
    written: int = 0
    ended: bool = False
    parent: ParentSeen | None = None

    @property
    def is_faceted(self) -> bool:
        """Whether an event of the run carried the facet."""
        return self.state is None and not self.pieces

    @property
    def has_room(self) -> bool:
        """Whether it may get more outputs."""
        taken_bytes = sum(piece.size_bytes + _OUTPUT_BYTES * piece.outputs for piece in self.pieces)
        return taken_bytes <= _RUN_BYTES_MAX

    @property
    def is_all_written(self) -> bool:
        """Whether its written records follow from all of its row and pieces."""
        return self.written == len(self.pieces) + (self.state is not None)


def rests_on_listener(record: ProvenanceRecord) -> bool:
    """Whether a record has nothing but the word of Spark's listener, which misses some failures."""
    return LISTENER_ONLY in (record.annotations or {}).get(EVIDENCE, "")


def has_plain_spark(journal: Journal) -> bool:
    """Whether the layout has written records that rest on the word of Spark's listener alone."""
    return journal.state_get(LAYOUT, PLAIN_SPARK) is not None


def key_of(run_id: str) -> str:
    """Return the run's part of its state keys: its id, or the hash of a long id."""
    if len(run_id) <= _KEY_CHARS_MAX and not run_id.startswith(_HASHED):
        return run_id
    return _HASHED + blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
