"""Queries of the provenance layout, as conditions on its columns."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.facets import canonical_did, canonical_dids
from waybill.transport.errors import WaybillError

from ..parquet import ALWAYS, TimeWindow
from .conditions import CONDITIONS, check_states
from .position import read_cursor

if TYPE_CHECKING:
    from ..names import Hour

_WILD: Final = "*?"
_OF_KIND: Final = (
    "data_source",
    "data_sink",
    "has_data_sink",
    "not_data_sinks",
    "system_name",
    "literal",
    "other_names",
    "final_state",
    "not_final_states",
)


class TooManyError(WaybillError):
    """Too many files, or kinds of records, to answer a query in bounded memory."""


def is_pattern(name: str) -> bool:
    """Whether a name has ``*`` or ``?``."""
    return any(wild in name for wild in _WILD)


def has_name(query: Query, field: str, name: str) -> bool:
    """Whether a name is what a query has in a field, or is matched by its pattern; without one, any is."""
    asked = getattr(query, field)
    if name in query.other_names.get(field, ()):
        return True
    if asked is None or not query.is_pattern(field):
        return asked in {None, name}
    first, *rest = (
        "".join("." if one == "?" else re.escape(one) for one in part) for part in asked.split("*")
    )
    # What is between two stars is taken where it comes first, and not tried anywhere else.
    between = "".join(f"(?>.*?{part})" for part in rest[:-1])
    expression = f"{first}{between}.*{rest[-1]}" if rest else first
    return re.fullmatch(expression, name, re.DOTALL) is not None


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are asked for: those that meet every condition given; see `ProvenanceRecord`.

    Attributes:
        did: one file; a UUID may be spelled in any way, and so in the other dids.
        dids: any of these files; None: any file.
        parent_dids: any file that was split from one of these; None: any file.
        data_source: came in through this source; a name or a pattern, as for `filename`.
        data_sink: left through this sink; a name or a pattern.
        has_data_sink: True: left through a sink, whichever; False: left through none.
        not_data_sinks: left through none of these; a record without a sink meets this.
        missing_sink: of a file that did not get to this sink, neither itself nor any file split from it or
            joined with it. The other conditions choose the files by their records; each file is in the answer
            once, by its last record that meets them.
        filename: a name, or a pattern with ``*`` and ``?``; every other character stands for itself.
        filename_dids: files that count as having the name. `Lineage`, the command and the collector add those
            of which the run read a dataset that has it.
        literal: the names of the fields of which ``*`` and ``?`` stand for themselves.
        other_names: by field, the other names of the same source or sink. `Lineage`, the command and the
            collector add those that a home's graph knows.
        final_state: this state, or any of these, in capitals or small letters; kept as a tuple.
        not_final_states: none of these states.
        annotations: every one of these keys with exactly this value.
        created_since_ms: `created` at or after this, in epoch milliseconds.
        created_until_ms: `created` before this, in epoch milliseconds.
        since_ms: `completed` at or after this, in epoch milliseconds.
        until_ms: `completed` before this, in epoch milliseconds.
        input_dataset: of a run that read this dataset, as a record shows it (``file:/data/lake``), or the
            last part of that. Only the index of a home knows that, so only `Lineage`,
            the command and the collector answer it.
        producer: of a file of which an event has exactly this `producer`; answered like `input_dataset`.
        oldest_first: whether the answer begins with the oldest; else with the newest.
        after: only what comes after the record with this cursor, in the order of the answer.
        limit: the first so many; all when None.

    Raises:
        CursorError: no answer gave `after`.
        InvalidQueryError: there is no such final state.
    """

    did: str | None = None
    dids: frozenset[str] | None = None
    parent_did: str | None = None
    parent_dids: frozenset[str] | None = None
    data_source: str | None = None
    data_sink: str | None = None
    has_data_sink: bool | None = None
    not_data_sinks: Collection[str] = ()
    missing_sink: str | None = None
    system_name: str | None = None
    filename: str | None = None
    filename_dids: frozenset[str] = frozenset()
    literal: frozenset[str] = frozenset()
    other_names: dict[str, frozenset[str]] = {}
    final_state: str | Collection[str] | None = None
    not_final_states: Collection[str] = ()
    annotations: Mapping[str, str] = {}
    created_since_ms: int | None = None
    created_until_ms: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    input_dataset: str | None = None
    producer: str | None = None
    oldest_first: bool = False
    after: str | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.after is not None:
            read_cursor(self.after)
        for name in ("did", "parent_did"):
            if (did := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, canonical_did(did))
        for name in ("dids", "parent_dids", "filename_dids"):
            if (dids := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, canonical_dids(dids))
        for name in ("final_state", "not_final_states"):
            if (states := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, check_states(name, states))

    @property
    def window(self) -> TimeWindow:
        """The span of `completed`."""
        since_ms = ALWAYS.since_ms if self.since_ms is None else self.since_ms
        until_ms = ALWAYS.until_ms if self.until_ms is None else self.until_ms
        if self.after is not None:
            after_ms = read_cursor(self.after).completed_ms
            if self.oldest_first:
                since_ms = max(since_ms, after_ms)
            else:
                until_ms = min(until_ms, after_ms + 1)
        return TimeWindow(since_ms, until_ms)

    def http_params(self) -> list[tuple[str, str]]:
        """The HTTP parameters that ask for records that meet these conditions."""
        return [(one.parameter, text) for one in CONDITIONS for text in one.tell(getattr(self, one.field))]

    def touches(self, hour: Hour) -> bool:
        """Whether an hour can hold any such record."""
        window = self.window
        return window.since_ms < hour.end_ms and window.until_ms > hour.start_ms

    @property
    def is_by_kind(self) -> bool:
        """Whether a record answers by its kind and its `completed` alone; see `of_kind`."""
        return self == msgspec.structs.replace(self.of_kind(), since_ms=self.since_ms, until_ms=self.until_ms)

    def of_kind(self) -> Query:
        """The conditions on system, source, sink and state alone."""
        return Query(**{name: getattr(self, name) for name in _OF_KIND})

    def is_pattern(self, field: str) -> bool:
        """Whether the name in a field is a pattern, so that it may stand for others."""
        return field not in self.literal and is_pattern(getattr(self, field) or "")
