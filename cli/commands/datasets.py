"""`waybill datasets`: datasets that may be in excess, and jobs that do the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from waybill.transport import Settings
from waybill.transport.counting import duration_text

from ..arguments import Csv, JsonObject, flag, moment, valued
from ..graph import ask_graph, show_answer
from ..options import with_settings
from ..records import iso

if TYPE_CHECKING:
    from waybill.lineage.graph import DatasetList, DuplicateList

_HOUR_S = 3_600


@with_settings("home", "root")
def datasets(
    settings: Settings,
    *,
    orphan: Annotated[bool, flag("--orphan", "Those that no job reads or writes.")] = False,
    unread: Annotated[bool, flag("--unread", "Those that jobs write, and none reads.")] = False,
    stale_ms: Annotated[
        int | None,
        valued(
            "AGE",
            "Those that jobs wrote, and none for this long: 6h, 30d, or since 2026-01-31.",
            "--stale",
            parser=moment,
        ),
    ] = None,
    duplicate_producers: Annotated[
        bool,
        flag("--duplicate-producers", "Jobs that write one dataset, or do the same from the same inputs."),
    ] = False,
    as_json: JsonObject = False,
    as_csv: Csv = False,
) -> None:
    """List datasets that nobody uses, or nobody writes any more, or jobs that do the same.

    Give one of --orphan, --unread, --stale and --duplicate-producers. A dataset that was dropped last is in
    no list. --stale is exact to the hour. "clock ahead" says by how much a sender's clock was ahead in the
    last run that wrote the dataset: its events count as of their receipt. Jobs do the same if they have the
    same inputs and, but for literals, comments and white space, the same SQL; a job that starts another one
    of them is left out. Their hours are those of the runs that have ended; of a job whose runs are files, of
    the last one only.

    Examples:
      waybill datasets --orphan
      waybill datasets --stale 30d --csv
      waybill datasets --duplicate-producers
    """
    from waybill.lineage.graph import OfDuplicates, OfStale, OfUnused

    if [orphan, unread, stale_ms is not None, duplicate_producers].count(True) != 1:
        raise typer.BadParameter("give one of --orphan, --unread, --stale and --duplicate-producers")
    columns: tuple[str, ...] = ("dataset", "last written", "clock ahead")
    found: DatasetList | DuplicateList
    rows: Iterator[tuple[object, ...]]
    if duplicate_producers:
        found = doubled = ask_graph(settings, OfDuplicates())
        columns, rows = ("why", "dataset", "job", "runs", "hours"), _of_producers(doubled)
    else:
        question = OfUnused(unread) if stale_ms is None else OfStale(stale_ms)
        found = listed = ask_graph(settings, question)
        rows = _of_datasets(listed)
    show_answer(found, columns, rows, nothing="there is none", as_json=as_json, as_csv=as_csv)


def _of_datasets(found: DatasetList) -> Iterator[tuple[object, ...]]:
    for one in found.datasets:
        written = None if one.written_ms is None else iso(one.written_ms)
        yield one.node, written, None if one.clock_ahead_s is None else duration_text(one.clock_ahead_s)


def _of_producers(found: DuplicateList) -> Iterator[tuple[object, ...]]:
    for same in found.duplicates:
        for one in same.producers:
            yield same.why, same.dataset, one.job, one.runs, f"{one.took_s / _HOUR_S:.2f}"
