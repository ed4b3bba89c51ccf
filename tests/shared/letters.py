"""Dead letters, as a delivery sets them aside."""

from __future__ import annotations

import msgspec

from waybill.marquez import DeadLetter


def letter(seq: int = 1, *, backend: str = "marquez", reason: str = "no", size_bytes: int = 1) -> DeadLetter:
    """An event that a backend has refused with 422."""
    return DeadLetter(
        backend=backend,
        seq=seq,
        size_bytes=size_bytes,
        key="run r",
        received_ms=1,
        set_aside_ms=2,
        tries=1,
        status=422,
        reason=reason,
    )


def row_of(told: DeadLetter) -> dict[str, bytes]:
    """What the journal's state of its backend has of it."""
    return {f"dead:{told.seq}": msgspec.json.encode(told)}
