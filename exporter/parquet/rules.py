"""The annotation rules by which the rows of a file were written.

Kept in the Parquet footer under `KEY` as JSON: a list of distinct rules, each with the allowed keys and
whether reasons are written. This distinguishes an altered row from a row that another rule wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from waybill.facets.annotations import REASONS, RESERVED, AnnotationRule

KEY: Final = b"waybill.rule"


class Rules(msgspec.Struct, frozen=True):
    """The distinct rules of any number of rows."""

    distinct: frozenset[AnnotationRule] = frozenset()

    @classmethod
    def read(cls, metadata: Mapping[bytes, bytes] | None) -> Rules:
        """From a footer's key-value metadata; raises `ValueError` if unreadable."""
        noted = (metadata or {}).get(KEY, b"[]")
        return cls(frozenset(msgspec.json.decode(noted, type=list[AnnotationRule])))

    @classmethod
    def of(cls, rule: AnnotationRule) -> Rules:
        """Of rows that one rule wrote."""
        return cls(frozenset({rule}))

    def uniting(self, others: Iterable[Rules]) -> Rules:
        """These rules and those of the others."""
        return Rules(self.distinct.union(*(other.distinct for other in others)))

    def metadata(self) -> dict[bytes, bytes]:
        """For the key-value metadata of a Parquet footer."""
        shown = [{"allowed": sorted(rule.allowed), "reasons": rule.reasons} for rule in self.distinct]
        return {KEY: msgspec.json.encode(sorted(shown, key=repr))}

    def as_one(self) -> AnnotationRule:
        """A rule that writes what any of them writes."""
        allowed = frozenset[str]().union(*(rule.allowed for rule in self.distinct))
        return AnnotationRule(allowed, reasons=any(rule.reasons for rule in self.distinct))


def is_apart(ours: Rules, theirs: Rules, key: str) -> bool:
    """Whether rows may have or lack an annotation, or have it otherwise, for these rules alone."""
    rules = ours.distinct | theirs.distinct
    return ours.distinct != theirs.distinct and len({_says(rule, key) for rule in rules}) > 1


def _says(rule: AnnotationRule, key: str) -> tuple[bool, bool]:
    """Whether a rule writes what a sender calls so, and whether it writes what Waybill derived."""
    is_allowed = key not in RESERVED and rule.keeps(key)
    return is_allowed, key in REASONS and (rule.reasons or is_allowed)
