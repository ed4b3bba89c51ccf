"""The views that find files: by conditions, and those that have not ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode

import msgspec

from waybill.exporter.query import CONDITIONS, Condition, ConditionKind, cursor_of
from waybill.facets import ProvenanceRecord, record_key
from waybill.facets.arrow import from_table
from waybill.facets.record import passage_of
from waybill.lineage.index import JobRun, OpenFile
from waybill.transport.counting import counted

from ..endpoints.query_params import QueryParams, filter_of, next_page, query_params_of
from ..endpoints.reading import Reading
from .charts import Bar, histogram
from .counting import Counts, Span, count_records
from .rendering import instant, link
from .view import View

if TYPE_CHECKING:
    from waybill.exporter import Query
    from waybill.lineage.answers import HomeAnswers

    from .view import Rows

LIMIT_DEFAULT: Final = 30
"""So many records are on a page: it is light."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the records that are found.

    Attributes:
        records: the page, in its order.
        unsettled: the dids of records in it that may still change.
        runs: by did, those of the records that are of runs and of no files.
        unended_files: how many further files and runs have not ended, and so have no record.
        next: the cursor of the next page; None: there is none.
        counts: None: counting would read all files, and was not asked for.
    """

    records: list[ProvenanceRecord]
    unsettled: list[str]
    runs: dict[str, JobRun]
    unended_files: int
    next: str | None
    counts: Counts | None


class Open(msgspec.Struct, frozen=True):
    """The files and runs that have begun and not ended, the longest silent first."""

    files: list[OpenFile]
    runs: dict[str, JobRun]
    total: int


class Params(NamedTuple):
    """The parameters of a view that finds files.

    Attributes:
        text: the query string.
        given: what it says.
        is_counted: whether to count what is found, even if that takes long.
    """

    text: str
    given: QueryParams
    is_counted: bool = False

    @property
    def every(self) -> Query:
        """The question for all records, not only for a page."""
        return _without_page(self.given.query)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The parameters as they were given, without those of a page."""
        return [pair for pair in parse_qsl(self.text) if pair[0] not in {"after", "offset"}]

    def narrowed(self, **more: object) -> str:
        """The address of the same question with some parameters in the place of those of the same name."""
        return link("/find", [pair for pair in self.pairs if pair[0] not in more], **more)

    def narrowed_to(self, field: str, name: str) -> str:
        """The address of the same question about records that have a name in a field."""
        return self.narrowed(**{field: name})

    def shown(self, name: str, value: str) -> str:
        """A value as people read it."""
        return next((_shown(one, value) for one in CONDITIONS if one.parameter == name), value)

    def widened(self, name: str, value: str) -> str:
        """The address of the same question without one condition."""
        return link("/find", [pair for pair in self.pairs if pair != (name, value)])

    def next_url(self, cursor: str) -> str:
        """The address of the next page."""
        return f"{link('/find')}?{next_page(self.text, cursor)}"

    @property
    def given_conditions(self) -> list[tuple[str, str, str]]:
        """The label, the parameter and the value of each condition."""
        labels = {name: label_of(one) for one in CONDITIONS for name in one.parameters}
        return [(labels[name], name, value) for name, value in self.pairs if name in labels]

    def fields(self, *, is_main: bool) -> list[Field]:
        """The fields of the form."""
        ones = [one for one in CONDITIONS if (one.field in _MAIN) == is_main]
        if is_main:
            ones.sort(key=lambda one: _MAIN.index(one.field))
        return [_field(one, self.pairs) for one in ones]


def _without_page(query: Query) -> Query:
    return msgspec.structs.replace(query, limit=None, after=None, oldest_first=False)


class Field(NamedTuple):
    """A field of the form.

    Attributes:
        name: its parameter.
        label: what it is called.
        help: which records meet the condition.
        kind: ``text``, ``datetime-local``, ``state`` or ``checkbox``.
        values: what it has been given.
        hint: what to give.
        is_repeatable: whether it takes several values.
    """

    name: str
    label: str
    help: str
    kind: str
    values: list[str]
    hint: str
    is_repeatable: bool

    @property
    def inputs(self) -> list[str]:
        """What its inputs have: one more than was given, if there may be one more."""
        return [*self.values, ""] if self.is_repeatable or not self.values else self.values


_MAIN: Final = ("filename", "data_source", "data_sink", "missing_sink", "since_ms", "until_ms", "final_state")
"""The conditions that are asked for most."""

_INPUTS: Final = {
    ConditionKind.INSTANT: "datetime-local",
    ConditionKind.UNTIL: "datetime-local",
    ConditionKind.STATES: "state",
    ConditionKind.IS_ABSENT: "checkbox",
}


def label_of(condition: Condition) -> str:
    """What a condition is called on the page: as the option of `waybill find`."""
    return condition.option.replace("-", " ").capitalize()


def _field(one: Condition, pairs: Sequence[tuple[str, str]]) -> Field:
    values = [_shown(one, value) for name, value in pairs if name == one.parameter]
    kind = _INPUTS.get(one.kind, "text")
    return Field(one.parameter, label_of(one), one.help, kind, values, one.metavar or "", one.is_repeatable)


def _shown(one: Condition, value: str) -> str:
    """A value as the form shows it: an instant as people write it."""
    if one.kind not in _INSTANTS or not value.isdecimal():
        return value
    at_ms = int(value) + (one.kind is ConditionKind.UNTIL)
    return instant(at_ms).replace(" ", "T")


_INSTANTS: Final = frozenset((ConditionKind.INSTANT, ConditionKind.UNTIL))


def _pairs_of(text: str) -> list[tuple[str, str]]:
    """The parameters with all instants in epoch milliseconds, as forms and people do not give them."""
    kinds = {one.parameter: one.kind for one in CONDITIONS if one.kind in _INSTANTS}
    pairs = []
    for name, value in parse_qsl(text, keep_blank_values=True):
        given = value
        with contextlib.suppress(ValueError):
            if name in kinds and "-" in value:
                at = datetime.fromisoformat(value)
                at_ms = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)
                given = str(at_ms - (kinds[name] is ConditionKind.UNTIL))
        if given:
            pairs.append((name, given))
    return pairs


def find_files(answers: HomeAnswers, params: Params) -> Found:
    """A page of the records that meet the conditions, and what all of them have in common."""
    query, offset, limit, is_partial, _ = params.given
    tables = Reading(answers, is_partial=is_partial).tables
    counts = None
    # The keys have the sums of all kinds. For other conditions, counting takes a second per million records.
    if params.is_counted or params.every.is_by_kind:
        query = answers.settle(query)
        every = _without_page(query)
        counts = count_records(lambda by: tables(every, summed_by=by), is_by_kind=every.is_by_kind)
    found = [record for table in tables(query) for record in from_table(table)]
    records = found[offset:][:limit]
    return Found(
        records=records,
        unsettled=[record.did for record in records if record_key(record) in answers.unsettled],
        runs=answers.job_runs(records, query),
        unended_files=answers.count_open(query),
        next=cursor_of(records[-1]) if offset + len(records) < len(found) else None,
        counts=counts,
    )


def read_find(text: str) -> Params:
    """Read the query string of `find_files`: that of the records, and ``count=true``."""
    pairs = _pairs_of(text)
    rest = urlencode([pair for pair in pairs if pair[0] != "count"])
    given = rest if "limit" in dict(pairs) else f"{rest}&limit={LIMIT_DEFAULT}"
    return Params(rest, query_params_of(given), is_counted=("count", "true") in pairs)


def draw_spans(found: Found, params: Params, *, is_alone: bool) -> str:
    """The records over time; on the page, each bar leads to its span."""
    spans = found.counts.spans if found.counts is not None else []
    bars = [
        Bar(
            span.records,
            span.errors,
            _told(span),
            None if is_alone else params.narrowed(**{"from": span.since_ms, "to": span.until_ms - 1}),
        )
        for span in spans
    ] or [Bar(0, 0, "no records")]
    ends = [instant(at_ms)[:16] for span in spans for at_ms in (span.since_ms, span.until_ms)] or [""]
    return histogram(bars, ends[0], ends[-1], "Records over time", is_alone=is_alone)


def _told(span: Span) -> str:
    counts = counted(span.records, "record"), counted(span.errors, "error")
    return f"{instant(span.since_ms)[:16]}: {', '.join(counts)}"


def rows_of(found: Found) -> Rows:
    """The page of records as a table."""
    return record_rows(found.records)


def record_rows(records: Iterable[ProvenanceRecord]) -> Rows:
    """Records as a table."""
    yield (*ProvenanceRecord.__struct_fields__, "passage")
    for record in records:
        values = (getattr(record, name) for name in ProvenanceRecord.__struct_fields__)
        yield (*map(_text_of, values), passage_of(record))


def _text_of(value: object) -> object:
    match value:
        case tuple():
            return " > ".join(map(str, value))
        case dict():
            return ", ".join(f"{key}={text}" for key, text in value.items())
        case _:
            return value


OPEN_MAX: Final = 500
"""So many open files are shown."""


def find_open(answers: HomeAnswers, params: Params) -> Open:
    """The files and runs that have begun and not ended, the longest silent first."""
    found = answers.open_files(params.given.query)
    return Open(found[:OPEN_MAX], answers.job_runs(found[:OPEN_MAX]), len(found))


def read_open(text: str) -> Params:
    """Read the query string of `find_open`."""
    text = urlencode(_pairs_of(text))
    return Params(text, filter_of(text))


def open_rows(found: Open) -> Rows:
    """The open files as a table."""
    yield OpenFile.__struct_fields__
    for file in found.files:
        yield [_text_of(getattr(file, name)) for name in OpenFile.__struct_fields__]


def is_long(params: Params) -> bool:
    """Whether an answer reads all files."""
    every = params.every
    return every.missing_sink is not None or (params.is_counted and not every.is_by_kind)


FIND: Final = View("/find", "Find", read_find, find_files, rows_of, draw_spans, is_long=is_long)
OPEN: Final = View("/open", "Open files", read_open, find_open, open_rows)
