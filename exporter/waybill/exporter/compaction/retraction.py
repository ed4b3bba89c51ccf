"""Taking records back that a run's later events contradict."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from waybill.exporter.names import Hour, RawName, hour_of
from waybill.facets.record import RecordKey


class Retraction(msgspec.Struct, frozen=True):
    """Records that are no longer so.

    Attributes:
        raw: the range whose entries take them back. What that range itself says stands, as does what comes
            after.
        keys: their natural keys.
    """

    raw: RawName
    keys: frozenset[RecordKey]

    def hours(self) -> set[Hour]:
        """The hours that the records are in."""
        return {hour_of(key[-1]) for key in self.keys}

    def of(self, hour: Hour) -> dict[str, frozenset[RecordKey]]:
        """The keys of one hour, by system."""
        found: dict[str, set[RecordKey]] = defaultdict(set)
        for key in self.keys:
            if hour_of(key[-1]) == hour:
                found[key[0]].add(key)
        return {system: frozenset(keys) for system, keys in found.items()}

    def takes_from(self, raw: RawName) -> bool:
        """Whether the records of a raw file came before this, from the same journal."""
        return raw.node == self.raw.node and raw.last < self.raw.first
