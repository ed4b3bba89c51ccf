"""The annotation rules by which the rows of a file were written.

Kept in the Parquet footer under `KEY` as JSON: a list of distinct rules, each with the allowed keys and
whether reasons are written. ``null`` stands for rows of an earlier version, which noted no rule; a file
without the key has only such rows. This distinguishes an altered row from a row that another rule wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from waybill.facets.annotations import REASONS, AnnotationRule

KEY: Final = b"waybill.rule"


class Rules(msgspec.Struct, frozen=True):
    """The distinct rules of any number of rows; None among them: a rule that was not noted."""

    distinct: frozenset[AnnotationRule | None] = frozenset()

    @classmethod
    def read(cls, metadata: Mapping[bytes, bytes] | None) -> Rules:
        """From a footer's key-value metadata; raises `ValueError` if unreadable."""
        noted = (metadata or {}).get(KEY, b"[null]")
        return cls(frozenset(msgspec.json.decode(noted, type=list[AnnotationRule | None])))

    @classmethod
    def of(cls, rule: AnnotationRule | None) -> Rules:
        """Of rows that one rule wrote."""
        return cls(frozenset({rule}))

    def uniting(self, others: Iterable[Rules]) -> Rules:
        """These rules and those of the others."""
        return Rules(self.distinct.union(*(other.distinct for other in others)))

    def metadata(self) -> dict[bytes, bytes]:
        """For the key-value metadata of a Parquet footer."""
        if self.distinct <= {None}:
            return {}
        shown = [
            None if rule is None else {"allowed": sorted(rule.allowed), "reasons": rule.reasons}
            for rule in self.distinct
        ]
        return {KEY: msgspec.json.encode(sorted(shown, key=repr))}

    def known(self, otherwise: AnnotationRule) -> frozenset[AnnotationRule]:
        """The rules, with that of an earlier version in place of one that was not noted.

        It allowed what the other allows, as far as anybody knows, and gave no reasons a place of their own.
        """
        earlier = AnnotationRule(otherwise.allowed, reasons=False)
        return frozenset(earlier if rule is None else rule for rule in self.distinct)

    def as_one(self) -> AnnotationRule | None:
        """A rule that writes what any of them writes; None where none was noted."""
        noted = [rule for rule in self.distinct if rule is not None]
        if not noted:
            return None
        allowed = frozenset().union(*(rule.allowed for rule in noted))
        return AnnotationRule(allowed, reasons=any(rule.reasons for rule in noted))


def keys_apart(ours: Rules, theirs: Rules) -> frozenset[str]:
    """The keys of annotations that rows may have or lack, or have otherwise, for these rules alone."""
    if ours.distinct == theirs.distinct:
        return frozenset()
    rules = ours.known(theirs.as_one() or AnnotationRule()) | theirs.known(ours.as_one() or AnnotationRule())
    keys = frozenset(REASONS).union(*(rule.allowed for rule in rules))
    return frozenset(key for key in keys if len({_says(rule, key) for rule in rules}) > 1)


def _says(rule: AnnotationRule, key: str) -> tuple[bool, bool]:
    """Whether a rule writes what a sender calls so, and whether it writes what Waybill derived."""
    is_allowed = key in rule.allowed
    return is_allowed, key in REASONS and (rule.reasons or is_allowed)
