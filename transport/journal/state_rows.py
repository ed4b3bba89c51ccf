"""Rows of one kind in the state that a projection keeps in the journal: what it knows of each run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Final, Generic, Protocol, TypeVar

import msgspec

_T = TypeVar("_T")

_DIGEST_BYTES: Final = 12


class StateStore(Protocol):
    """A journal, or what stands for one while nothing of it may change."""

    def state(self, projection: str, prefix: str) -> dict[str, bytes]:
        """As `Journal.state`."""

    def state_of(self, projection: str, keys: Collection[str]) -> dict[str, bytes]:
        """As `Journal.state_of`."""

    def commit(
        self, projection: str, *, put: Mapping[str, bytes], delete: Iterable[str], durable: bool
    ) -> None:
        """As `Journal.commit`."""


class StateRows(Generic[_T]):
    """Reads such rows, and encodes them for the projection's own commit, with which they change.

    Args:
        prefix: the beginning of their names; the rest is the key.
        of: the type of their values.
    """

    def __init__(self, journal: StateStore, projection: str, prefix: str, of: type[_T]) -> None:
        self._journal = journal
        self._projection = projection
        self._prefix = prefix
        self._decoder = msgspec.msgpack.Decoder(of)

    def of(self, keys: Collection[str]) -> dict[str, _T]:
        """The values of some keys; those that have none are left out."""
        names = {self.name(key): key for key in keys}
        rows = self._journal.state_of(self._projection, names)
        return {names[name]: self._decoder.decode(row) for name, row in rows.items()}

    def all(self, beginning: str = "") -> dict[str, _T]:
        """All values, by key, or those whose keys begin like this."""
        rows = self._journal.state(self._projection, self._prefix + beginning)
        return {name.removeprefix(self._prefix): self._decoder.decode(row) for name, row in rows.items()}

    def name(self, key: str) -> str:
        """The name of a key's row."""
        return self._prefix + key

    def encoded(self, values: Mapping[str, _T]) -> dict[str, bytes]:
        """Rows to put, by name."""
        return {self.name(key): msgspec.msgpack.encode(value) for key, value in values.items()}


def key_of_run(run_id: str) -> str:
    """The key of a run, which is short whatever its id is."""
    return blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
