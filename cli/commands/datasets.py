"""`waybill datasets`: datasets that may be in excess, and jobs that do the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from waybill.transport import Settings

from .. import console
from ..arguments import Csv, JsonObject, moment
from ..arrow import arrow_alone
from ..graph import ask_graph
from ..options import with_settings
from ..records import as_plain, iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waybill.lineage.graph import DatasetList, DuplicateList

_HOUR_MS = 3_600_000


@with_settings("home", "root")
@arrow_alone()
def datasets(
    settings: Settings,
    *,
    orphan: Annotated[bool, typer.Option("--orphan", help="Those that no job reads or writes.")] = False,
    unread: Annotated[bool, typer.Option("--unread", help="Those that jobs write, and none reads.")] = False,
    stale_ms: Annotated[
        int | None,
        typer.Option(
            "--stale",
            parser=moment,
            metavar="AGE",
            help="Those that jobs wrote, and none for this long: 6h, 30d, or since 2026-01-31.",
        ),
    ] = None,
    duplicate_producers: Annotated[
        bool,
        typer.Option(
            "--duplicate-producers", help="Jobs that write one dataset, or do the same from the same inputs."
        ),
    ] = False,
    as_json: JsonObject = False,
    as_csv: Csv = False,
) -> None:
    """List datasets that nobody uses, or nobody writes any more, or jobs that do the same.

    Give one of --orphan, --unread, --stale and --duplicate-producers. A dataset that was dropped last is in
    no list. --stale is exact to the hour. Jobs do the same if they have the same inputs and, but for
    literals, comments and white space, the same SQL; a job that starts another one of them is left out. Their
    hours are those of the runs that have ended; of a job whose runs are files, of the last one only.

    Examples:

    \b
      waybill datasets --orphan
      waybill datasets --stale 30d --csv
      waybill datasets --duplicate-producers
    """
    from waybill.lineage.graph import OfDuplicates, OfStale, OfUnused

    if [orphan, unread, stale_ms is not None, duplicate_producers].count(True) != 1:
        raise typer.BadParameter("give one of --orphan, --unread, --stale and --duplicate-producers")
    found: DatasetList | DuplicateList
    if duplicate_producers:
        found = doubled = ask_graph(settings, OfDuplicates())
        columns: tuple[str, ...] = ("why", "dataset", "job", "runs", "hours")
        rows = list(_of_producers(doubled))
    else:
        question = OfUnused(unread) if stale_ms is None else OfStale(stale_ms)
        found = listed = ask_graph(settings, question)
        columns = ("dataset", "last written")
        rows = list(_of_datasets(listed))
    if as_json:
        console.json(as_plain(found))
    elif rows or as_csv:
        console.table(columns, rows, as_csv=as_csv)
    else:
        console.note("there is none")


def _of_datasets(found: DatasetList) -> Iterator[tuple[str, ...]]:
    from waybill.lineage.graph import shown

    for one in found.datasets:
        yield shown(one.node), "" if one.written_ms is None else iso(one.written_ms)


def _of_producers(found: DuplicateList) -> Iterator[tuple[str, ...]]:
    from waybill.lineage.graph import shown

    for same in found.duplicates:
        dataset = "" if same.dataset is None else shown(same.dataset)
        for one in same.producers:
            hours = f"{one.run_ms / _HOUR_MS:.2f}"
            yield same.why, dataset, shown(one.job), str(one.runs), hours
