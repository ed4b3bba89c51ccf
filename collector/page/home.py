"""The first view: what there is, and questions that are ready to ask."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from waybill.exporter import Query
from waybill.exporter.query import Dimension, Stats
from waybill.facets import FinalState

from .view import View

if TYPE_CHECKING:
    from waybill.lineage.answers import HomeAnswers

    from .view import Rows

_DAY_MS: Final = 86_400_000


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """What a home has.

    Attributes:
        stats: the number of its records.
        today_ms: when today began in UTC, in epoch milliseconds.
        errors_today: how many records ended with an error since.
        open_files: how many files and runs have begun and not ended.
        sources: the names of all data sources.
        sinks: the names of all data sinks.
    """

    stats: Stats
    today_ms: int
    errors_today: int
    open_files: int
    sources: list[str]
    sinks: list[str]


def summarize(answers: HomeAnswers, _: None) -> Home:
    """What a home has."""
    today_ms = time.time_ns() // 1_000_000 // _DAY_MS * _DAY_MS
    wrong = Query(final_state=FinalState.ERROR, since_ms=today_ms)
    sinks = answers.sums([Dimension.SINK], Query())
    stats = answers.stats(Query())
    return Home(
        stats=stats,
        today_ms=today_ms,
        errors_today=answers.sums([], wrong)[()],
        open_files=len(answers.open_files(Query())),
        sources=sorted(stats.by_data_source),
        sinks=[str(name) for (name,) in sinks if name is not None],
    )


def rows_of(home: Home) -> Rows:
    """The numbers of records as a table."""
    yield "kind", "name", "records"
    for kind, counts in (
        ("final_state", home.stats.by_final_state),
        ("system_name", home.stats.by_system_name),
        ("data_source", home.stats.by_data_source),
    ):
        yield from ((kind, name, count) for name, count in counts.items())


HOME: Final = View("/", "Start", lambda _: None, summarize, rows_of)
