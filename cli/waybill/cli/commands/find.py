"""`waybill find`: find files by their records."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from waybill.cli import completing, console, open_files, records
from waybill.cli.arguments import FORMS, Csv, JsonLines, check_did, check_span, moment, word
from waybill.cli.arrow import arrow_alone
from waybill.cli.home import as_agreed, checked_root, existing_journal, files_into
from waybill.cli.options import with_settings
from waybill.facets import FinalState, ProvenanceRecord, record_key
from waybill.facets.merge_rule import RecordKey
from waybill.transport import Journal, Settings, WaybillError

if TYPE_CHECKING:
    from datetime import tzinfo

    import pyarrow as pa

    from waybill.cli.marquez_page import MarquezPage
    from waybill.exporter import Query
    from waybill.exporter.query import OpenRunSeen, Unsettled

    Ask = Callable[[Query], Iterator[pa.Table]]


class _Found(msgspec.Struct):
    """The newest records that match a query."""

    records: list[ProvenanceRecord]
    total: int | None = None
    """The number of matching records; None if `records` has all of them."""
    unsettled: set[RecordKey] = set()
    """The keys of the records that may still change."""
    incomplete: WaybillError | None = None
    """The reason why records may be missing; None if none are."""


@with_settings("home", "root", "marquez_page_url")
@arrow_alone()
def find(
    settings: Settings,
    *,
    did: Annotated[str | None, typer.Option(metavar="UUID", help="The file with this identity.")] = None,
    parent: Annotated[str | None, typer.Option(metavar="UUID", help="Files split from this one.")] = None,
    data_source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Files that came from this source.")
    ] = None,
    data_sink: Annotated[
        str | None, typer.Option(metavar="NAME", help="Files that left through this sink.")
    ] = None,
    not_data_sink: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Files that left through another sink, or none. Repeatable."),
    ] = None,
    no_data_sink: Annotated[
        bool, typer.Option("--no-data-sink", help="Files that left through no sink.")
    ] = False,
    system: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=completing.systems, help="Records of this system."),
    ] = None,
    filename: Annotated[
        str | None, typer.Option(metavar="NAME", help="Files of this name; * and ? match any.")
    ] = None,
    state: Annotated[
        list[FinalState] | None, word(of=FinalState, help="Files with this final state. Repeatable: any.")
    ] = None,
    not_state: Annotated[
        list[FinalState] | None, word(of=FinalState, help="Files with another final state. Repeatable.")
    ] = None,
    annotation: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Files with this annotation. Repeatable."),
    ] = None,
    is_open: Annotated[
        bool,
        typer.Option("--open", help="Files and runs that have not ended, the longest silent first."),
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help=f"Only records that ended at this time or later: {FORMS}."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only records that ended before this time.")
    ] = None,
    created_since: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only files that began at this time or later.")
    ] = None,
    created_until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="Only files that began before this time.")
    ] = None,
    tz: Annotated[
        str,
        typer.Option(
            metavar="UTC|local|NAME", help="The time zone of the output, and of given times without one."
        ),
    ] = "UTC",
    limit: Annotated[
        int,
        typer.Option(
            metavar="COUNT", min=1, max=1_000_000_000, help="Show at most this many records, newest first."
        ),
    ] = 100,
    everything: Annotated[bool, typer.Option("--all", help="Show all records.")] = False,
    as_json: JsonLines = False,
    as_csv: Csv = False,
) -> None:
    """Find files by where they came from, what was done to them, and where they ended.

    Shows one record for each path that a file took, newest first. Accepted records are found at once, even
    before they are in files. A run that has ended but may still change is shown as not settled. If not all
    records are shown, a line on stderr gives the total. Another line on stderr counts the accepted entries
    that are poison: their records are missing from every answer. Exit code 0 even if nothing is found; 1 if a
    file could not be read, so records may be missing.

    Examples:

    \b
      waybill find --state ERROR --since 24h --tz local
      waybill find --data-sink warehouse --annotation customer=acme --json | jq .filename
    """
    from waybill.exporter import Query
    from waybill.exporter.query import PatternError, poison_note

    zone = records.zone_of(tz)
    since_ms, until_ms, created_since_ms, created_until_ms = (
        None if text is None else moment(text, zone, option)
        for option, text in (
            ("--since", since),
            ("--until", until),
            ("--created-since", created_since),
            ("--created-until", created_until),
        )
    )
    check_span(since_ms, until_ms)
    check_span(created_since_ms, created_until_ms, "--created-since", "--created-until")
    _refuse_contradictions(data_sink, no_data_sink, not_data_sink, state, not_state)
    try:
        query = Query(
            did=did,
            parent_did=parent,
            data_source=data_source,
            data_sink=data_sink,
            system_name=system,
            filename=filename,
            has_data_sink=False if no_data_sink else None,
            not_data_sinks=tuple(not_data_sink or ()),
            final_state=tuple(state) if state else None,
            not_final_states=tuple(not_state or ()),
            created_since_ms=created_since_ms,
            created_until_ms=created_until_ms,
            annotations=_pairs(annotation or []),
            since_ms=since_ms,
            until_ms=until_ms,
        )
    except PatternError as error:
        raise typer.BadParameter(str(error), param_hint="--filename") from None
    if is_open:
        _refuse_what_has_ended(query)
        _find_open(settings, query, None if everything else limit, zone, as_json=as_json, as_csv=as_csv)
        return
    with existing_journal(settings) as journal:
        agreed = as_agreed(settings, journal)
        checked_root(agreed)
        is_whole_home = journal is not None and files_into(journal, agreed.root)
        unsettled = _read_unsettled(journal, agreed, query) if journal and is_whole_home else None
        ask, where = _source(journal if is_whole_home else None, agreed, unsettled)
        found = _look_up(ask, query, None if everything else limit)
        if unsettled is not None:
            _add(found, unsettled.open, None if everything else limit)
        page = _page(settings, agreed, journal, ask)
        urls = [page.url(record) if page and as_json else None for record in found.records]
        shown_urls = page.urls(found.records) if page and not as_json else []
        if journal is not None and (poison := poison_note(journal)) is not None:
            console.note(poison)
    if as_json:
        for record, url in zip(found.records, urls, strict=True):
            more = {"settled": record_key(record) not in found.unsettled}
            console.json(records.as_plain(record) | more | ({"marquez_page": url} if url else {}))
    elif found.records or as_csv:
        records.show(found.records, zone, found.unsettled, as_csv=as_csv)
    for url in shown_urls:
        console.note(f"on Marquez's page: {url}")
    _say_what_is_not_shown(found, query, where)


def _page(settings: Settings, agreed: Settings, journal: Journal | None, ask: Ask) -> MarquezPage | None:
    """Marquez's page, if its address is known."""
    base = settings.marquez_page_url or agreed.marquez_page_url
    if base is None or journal is None:
        return None
    # It loads what delivers to Marquez, which an answer without links does not need.
    from waybill.cli.marquez_page import MarquezPage
    from waybill.exporter import Query
    from waybill.facets.arrow import from_table

    def source_of(did: str) -> str | None:
        found = (record for table in ask(Query(did=did, limit=1)) for record in from_table(table))
        return next((record.data_source for record in found), None)

    return MarquezPage(base, journal, source_of)


def _refuse_contradictions(
    data_sink: str | None,
    no_data_sink: bool,
    not_data_sink: list[str] | None,
    state: list[FinalState] | None,
    not_state: list[FinalState] | None,
) -> None:
    """Refuse conditions that no record can meet together."""
    if data_sink is not None and no_data_sink:
        raise typer.BadParameter("leave out --data-sink, or leave out this", param_hint="--no-data-sink")
    if data_sink is not None and data_sink in (not_data_sink or ()):
        raise typer.BadParameter(
            f"--data-sink asks for {data_sink!r}; leave out one of them", param_hint="--not-data-sink"
        )
    if both := set(state or ()) & set(not_state or ()):
        raise typer.BadParameter(
            f"--state asks for {min(both)}; leave out one of them", param_hint="--not-state"
        )


def _refuse_what_has_ended(query: Query) -> None:
    """Refuse conditions that only a record can meet."""
    given = {
        "--state": query.final_state,
        "--not-state": query.not_final_states,
        "--data-sink": query.data_sink,
        "--not-data-sink": query.not_data_sinks,
        "--no-data-sink": query.has_data_sink is False,
        "--created-since": query.created_since_ms is not None,
        "--created-until": query.created_until_ms is not None,
        "--parent": query.parent_did,
        "--annotation": query.annotations,
        "--since": query.since_ms,
        "--until": query.until_ms,
    }
    if wrong := [option for option, value in given.items() if value]:
        raise typer.BadParameter(
            "open files do not have this yet; leave it out, or leave out --open", param_hint=wrong[0]
        )


def _find_open(
    settings: Settings,
    query: Query,
    limit: int | None,
    zone: tzinfo | None,
    *,
    as_json: bool,
    as_csv: bool,
) -> None:
    from waybill.exporter.query import IncompleteError, open_runs

    unread: list[str] = []
    with existing_journal(settings) as journal:
        runs = open_runs(journal, as_agreed(settings, journal), unread) if journal else []
    found = [run for run in runs if _is_asked_for(run, query)]
    shown = found[:limit]
    if as_json:
        for run in shown:
            console.json(open_files.as_json(run))
    elif shown or as_csv:
        open_files.show(shown, zone, as_csv=as_csv)
    if len(shown) < len(found):
        says = f"showing {len(shown):,} of {len(found):,}, the longest silent first"
        console.note(f"{says}; --limit COUNT shows more, --all shows all")
    if unread:
        raise IncompleteError(tuple(unread))
    if not found:
        console.note(f"nothing is open in {settings.home}")


def _is_asked_for(run: OpenRunSeen, query: Query) -> bool:
    from waybill.exporter.query import spellings_of

    if query.filename is not None and not fnmatch.fnmatchcase(run.filename or "", query.filename):
        return False
    if query.did is not None and run.did not in spellings_of(query.did):
        return False
    wanted = (query.system_name, run.system_name), (query.data_source, run.data_source)
    return all(asked in {None, told} for asked, told in wanted)


def _source(journal: Journal | None, agreed: Settings, unsettled: Unsettled | None) -> tuple[Ask, str]:
    """The function that answers queries, and a phrase for the place that it searches."""
    from waybill.exporter.query import answer, scan

    if journal is not None and unsettled is not None:
        ask = partial(answer, journal, agreed, derived=unsettled.settled)
        return ask, f"in {journal.path} and below {agreed.root}"
    return partial(scan, agreed.root), f"below {agreed.root}"


def _look_up(ask: Callable[..., Iterator[pa.Table]], query: Query, limit: int | None) -> _Found:
    from waybill.exporter.query import IncompleteError
    from waybill.facets.arrow import from_table

    found = _Found([])
    one_more = None if limit is None else limit + 1
    try:
        for table in ask(msgspec.structs.replace(query, limit=one_more)):
            found.records += from_table(table)
        if limit is not None and len(found.records) > limit:
            found.records = found.records[:limit]
            found.total = sum(table.num_rows for table in ask(query, columns=("completed",)))
    except IncompleteError as error:
        found.incomplete = error
    return found


def _read_unsettled(journal: Journal, agreed: Settings, query: Query) -> Unsettled:
    from waybill.exporter.query import read_unsettled

    # Read these first: records that are filed meanwhile are then found in the files.
    found = read_unsettled(journal, agreed, query, now_ms=time.time_ns() // 1_000_000)
    if not found.is_whole:
        console.note(
            "too many runs are not in files yet to fit into memory; some runs without the facet are not shown"
        )
    return found


def _add(found: _Found, unsettled: list[ProvenanceRecord], limit: int | None) -> None:
    """Add records that may still change, except those that were filed meanwhile."""
    known = {record_key(record) for record in found.records}
    more = [one for one in unsettled if record_key(one) not in known]
    found.unsettled = {record_key(one) for one in more}
    before = found.total or len(found.records)
    merged = sorted([*found.records, *more], key=lambda one: (one.completed, one.did), reverse=True)
    found.records = merged[:limit]
    if len(found.records) < len(merged) or found.total is not None:
        found.total = before + len(more)


def _say_what_is_not_shown(found: _Found, query: Query, where: str) -> None:
    if found.total is not None:
        shown = f"showing the newest {len(found.records):,} of {found.total:,}"
        console.note(f"{shown}; --limit COUNT shows more, --all shows all")
    if found.incomplete:
        raise found.incomplete
    if found.records:
        return
    for option, did in (("--did", query.did), ("--parent", query.parent_did)):
        if did is not None:
            check_did(did, option)
    console.note(f"nothing found {where}")


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not (key and equals):
            raise typer.BadParameter(f"{key!r} is not a pair; give KEY=VALUE", param_hint="--annotation")
    return {key: value for key, _, value in pairs}
