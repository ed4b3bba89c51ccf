"""Which annotations of a record are written, and which names among them are Waybill's own.

Waybill's own annotations have reserved names until a rule is applied. So a sender's annotation with the same
plain name is not mistaken for one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from .causes import shortened

EVIDENCE: Final = "waybill.evidence"
"""The annotation with the evidence for a derived record, if that is weaker than the run's own end event.

It is Waybill's own: no rule removes it, and no sender can set it.
"""

REASONS: Final[Mapping[str, str]] = {"errorCause": "ERROR", "filteredCause": "FILTERED"}
"""The annotations with the reason why a path ended, each with the final state that it explains."""

ERROR_CAUSE: Final = "waybill.errorCause"
FILTERED_CAUSE: Final = "waybill.filteredCause"
_OWN: Final = {"errorCause": ERROR_CAUSE, "filteredCause": FILTERED_CAUSE}
"""The reserved name of each reason that Waybill derived."""

RUN: Final = "waybill.run"
"""The reserved name of `run`, which marks the record of a failure whose run the sender does not name."""
LISTENER_SAYS: Final = "waybill.listener"
"""The reserved name of `listener`, which marks the record of a write that Spark's listener did not report."""
MARKS: Final = {RUN: "run", LISTENER_SAYS: "listener"}
"""The reserved names of the marks of records, which no rule removes, each with the name that is written."""
PART: Final = "waybill.part"
"""Marks the run of a query or a write within a command: the command's run has the record."""

ALL: Final = "*"
"""Stands among allowed keys for every key."""

RESERVED: Final = frozenset({EVIDENCE, PART, *MARKS, *_OWN.values()})
"""The names of annotations that only Waybill itself sets; a sender's are dropped."""
_REASON_NAMES: Final = RESERVED | REASONS.keys()


class AnnotationRule(msgspec.Struct, frozen=True):
    """Which annotations of a record are written.

    Attributes:
        allowed: the keys that a sender's annotations may have; `*` among them: any.
        reasons: whether the reasons that Waybill derived are written even if `allowed` does not name them.
    """

    allowed: frozenset[str] = frozenset()
    reasons: bool = True

    @property
    def keeps_all(self) -> bool:
        """Whether a sender's annotations may have any key."""
        return ALL in self.allowed

    def keeps(self, key: str) -> bool:
        """Whether a sender's annotations may have a key, unless it is reserved."""
        return key in self.allowed or self.keeps_all

    def is_dropped(self, key: str) -> bool:
        """Whether a key that a program gives never reaches a record; Waybill's own names are not meant."""
        return not self.keeps(key) and key not in _REASON_NAMES

    def kept_columns(self, annotations: dict[str, str]) -> dict[str, str] | None:
        """The annotations from which columns take those that are written, whose keys `kept_keys` returns."""
        # Nearly all need no change; only the names of reasons are not always what they seem.
        return annotations if _REASON_NAMES.isdisjoint(annotations) else self.kept(annotations)

    def kept_keys(self, many: Iterable[dict[str, str] | None]) -> list[str]:
        """The keys of the columns of many annotations, sorted."""
        keys = set().union(*filter(None, many))
        return sorted(key for key in keys if self.keeps(key) or key in _REASON_NAMES)

    def kept(self, annotations: Mapping[str, str] | None) -> dict[str, str] | None:
        """The annotations that are written, sorted by key; None rather than empty.

        A reason gets its plain name. If a sender's own annotation of that name is allowed, that one is
        written. So do the marks of records, which no rule removes.
        """
        if not annotations:
            return None
        allowed = annotations.keys() if self.keeps_all else self.allowed
        found = {key: value for key, value in annotations.items() if key in allowed}
        if not RESERVED.isdisjoint(annotations):
            found = {key: value for key, value in found.items() if key not in RESERVED}
            if EVIDENCE in annotations:
                found[EVIDENCE] = annotations[EVIDENCE]
            for name, own in _OWN.items():
                if own in annotations and (self.reasons or self.keeps(name)):
                    found.setdefault(name, annotations[own])
            found |= {name: annotations[mark] for mark, name in MARKS.items() if mark in annotations}
        return dict(sorted(found.items())) if found else None


def as_sent(annotations: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """A sender's valid annotations, sorted by key: those that have a value, but none of ours."""
    if not annotations:
        return None
    said = sorted(annotations.items())
    return {key: value for key, value in said if value is not None and key not in RESERVED} or None


def with_filtered_cause(annotations: dict[str, str] | None) -> dict[str, str] | None:
    """The annotations of a filtered file from our Tracker: `filteredCause` gets the reserved name."""
    if not annotations or "filteredCause" not in annotations:
        return annotations
    others = {key: value for key, value in annotations.items() if key != "filteredCause"}
    return dict(sorted({**others, FILTERED_CAUSE: shortened(annotations["filteredCause"])}.items()))
