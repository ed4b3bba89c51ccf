"""A batch of state without a journal: what it holds is what would be stored."""

from __future__ import annotations

from waybill.marquez.state_batch import StateBatch


class StoredRows(StateBatch):
    """Keeps rows in memory, each change at once."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}

    def put(self, key: str, value: bytes, *, seq: int | None = None) -> None:
        del seq
        self.rows[key] = value

    def delete(self, *keys: str) -> None:
        for key in keys:
            self.rows.pop(key, None)
