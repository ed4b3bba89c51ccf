"""The first view: what there is, and questions that are ready to ask."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter import Query
from waybill.facets import FinalState
from waybill.transport.clock import SYSTEM_CLOCK

from ..http import read_params
from .counting import Counts, count_records
from .view import View

if TYPE_CHECKING:
    from waybill.lineage.answers import HomeAnswers

    from .view import Rows

_DAY_MS: Final = 86_400_000


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """What a home has.

    Attributes:
        counts: of all its records.
        today_ms: when today began in UTC, in epoch milliseconds.
        errors_today: how many records ended with an error since.
        open_files: how many files and runs have begun and not ended.
    """

    counts: Counts
    today_ms: int
    errors_today: int
    open_files: int


class Params(msgspec.Struct):
    """It takes none."""


def summarize(answers: HomeAnswers, _: Params) -> Home:
    """What a home has."""
    today_ms = SYSTEM_CLOCK.now_ms() // _DAY_MS * _DAY_MS
    wrong = Query(final_state=FinalState.ERROR, since_ms=today_ms)
    return Home(
        counts=count_records(lambda by: answers.tables(Query(), summed_by=by), is_by_kind=True),
        today_ms=today_ms,
        errors_today=answers.sums([], wrong)[()],
        open_files=len(answers.open_files(Query())),
    )


def rows_of(home: Home) -> Rows:
    """The numbers of records as a table."""
    yield "field", "name", "records"
    for field, counts in home.counts.names.items():
        yield from ((field, one.name, one.records) for one in counts)


HOME: Final = View("/", "Start", partial(read_params, kind=Params), summarize, rows_of)
