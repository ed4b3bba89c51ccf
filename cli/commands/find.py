"""`waybill find`: find files by their records."""

from __future__ import annotations

import contextlib
import fnmatch
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
import typer

from waybill.exporter import reading
from waybill.facets import AnnotationRule, FinalState, record_key
from waybill.facets.merge_rule import RecordKey
from waybill.transport import Journal, Settings, WaybillError

from .. import completing, console, counts, open_files, records
from ..arguments import FORMS, Csv, JsonLines, check_did, check_span, moment, word
from ..arrow import arrow_alone
from ..home import as_agreed, check_home, checked_root, existing_journal, files_into, list_open_files
from ..options import with_settings

if TYPE_CHECKING:
    from datetime import tzinfo

    import pyarrow as pa

    from waybill.exporter import Query
    from waybill.exporter.query import Dimension, Unsettled
    from waybill.lineage import OpenFile

    from ..marquez_page import MarquezPage

    Ask = Callable[..., Iterator[pa.Table]]

_SHOWN: Final = 100
"""So many records are shown unless the user asks for another number."""


class _Asking(NamedTuple):
    """What answers the question of a command.

    Attributes:
        ask: gives the records that answer a query.
        where: a phrase for the place that it searches.
        unsettled: the keys of the records that may still change.
        page: Marquez's page, if its address is known.
        query: the conditions, as records can meet them.
    """

    ask: Ask
    where: str
    unsettled: frozenset[RecordKey]
    page: MarquezPage | None
    query: Query


class _Form(NamedTuple):
    """How an answer is printed."""

    zone: tzinfo | None
    as_json: bool
    as_csv: bool


@with_settings("home", "root", "marquez_page_url", or_exported=True)
@arrow_alone()
def find(
    settings: Settings,
    exported: str | None,
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
    missing_sink: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Files that did not get to this sink, nor did any file that came from them. Shows the last "
            "record of each that meets the other conditions.",
        ),
    ] = None,
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
    input_dataset: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="NAME",
            help="Files of runs that read this dataset: NAMESPACE/NAME, or the last part of a name.",
        ),
    ] = None,
    producer: Annotated[
        str | None, typer.Option(metavar="URI", help="Files whose events have this producer.")
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
    oldest: Annotated[bool, typer.Option("--oldest", help="The oldest first, not the newest.")] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT",
            min=1,
            max=1_000_000_000,
            help="Show at most this many records.",
            show_default=str(_SHOWN),
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show all records.")] = False,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Go on after the page that gave this cursor.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only how many records there are.")] = False,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="KIND,...",
            help="Print how many records there are of each kind: state, system, source, sink, hour, or "
            "several of them, such as state,sink.",
        ),
    ] = None,
    parquet_file: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="FILE", help="Write all records to this file, as the root's are."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --parquet.")] = False,
    as_json: JsonLines = False,
    as_csv: Csv = False,
) -> None:
    """Find files by where they came from, what was done to them, and where they ended.

    Shows one record for each path that a file took, newest first. Accepted records are found at once, even
    before they are in files. A run that has ended but may still change is shown as not settled. If more
    records follow, a line on stderr gives the cursor with which --after shows them; with --json the last
    record has it as "next". Pages stay together while records arrive. Another line on stderr counts the
    accepted entries that are poison: their records are missing from every answer. Exit code 0 even if nothing
    is found; 1 if a file could not be read, so records may be missing.

    Examples:

    \b
      waybill find --state ERROR --since yesterday --tz local
      waybill find --since 24h --by source,state
      waybill find --missing-sink warehouse --data-source sftp-in --since 24h --count
      waybill find --data-sink warehouse --annotation customer=acme --json | jq .filename
      waybill find --root s3://bucket/lineage --filename orders.csv
    """
    from waybill.exporter import Query
    from waybill.exporter.query import CursorError

    form = _Form(records.zone_of(tz), as_json, as_csv)
    since_ms, until_ms = _span(form.zone, {"--since": since, "--until": until})
    created_since_ms, created_until_ms = _span(
        form.zone, {"--created-since": created_since, "--created-until": created_until}
    )
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
            missing_sink=missing_sink,
            input_dataset=input_dataset,
            producer=producer,
            final_state=tuple(state) if state else None,
            not_final_states=tuple(not_state or ()),
            created_since_ms=created_since_ms,
            created_until_ms=created_until_ms,
            annotations=_pairs(annotation or []),
            since_ms=since_ms,
            until_ms=until_ms,
            oldest_first=oldest,
            after=after,
        )
    except CursorError as error:
        raise typer.BadParameter(str(error), param_hint="--after") from None
    _refuse_forms(
        parquet_file, limit, {"--count": count, "--by": by}, {"--json": as_json, "--csv": as_csv}, force=force
    )
    query = reading.allow(reading.os_user(), query)
    kinds = _dimensions(by)
    shown = None if everything else limit or _SHOWN
    if is_open:
        if exported is not None:
            raise typer.BadParameter("only a home knows what is open; leave out --root", param_hint="--open")
        _refuse_what_has_ended(query, {"--by": by, "--parquet": parquet_file})
        _find_open(settings, query, shown, form, is_counted=count)
        return
    place = _asking(settings, query) if exported is None else _asking_exported(settings, exported, query)
    with place as asking:
        query = asking.query
        if parquet_file is not None:
            tell = _save(asking, msgspec.structs.replace(query, limit=limit), parquet_file, replace=force)
        elif count or kinds:
            tell = _count(asking, query, kinds, form)
        else:
            tell = _list(asking, query, shown, form)
    tell()


def _span(zone: tzinfo | None, given: Mapping[str, str | None]) -> tuple[int | None, int | None]:
    """The two moments that two options give, the first of which must not be the later one."""
    since, until = given
    since_ms, until_ms = (
        None if text is None else moment(text, zone, option) for option, text in given.items()
    )
    check_span(since_ms, until_ms, since, until)
    return since_ms, until_ms


def _dimensions(by: str | None) -> list[Dimension]:
    """The dimensions that `--by` names."""
    from waybill.exporter.query import Dimension

    names = [] if by is None else [name.strip().lower() for name in by.split(",")]
    wrong = next((name for name in names if name not in set(Dimension)), None)
    if wrong is not None:
        says = f"{wrong[:40]!r} is not one of {', '.join(Dimension)}"
        raise typer.BadParameter(says, param_hint="--by")
    return [Dimension(name) for name in dict.fromkeys(names)]


def _refuse_forms(
    parquet_file: Path | None,
    limit: int | None,
    counts: Mapping[str, object],
    prints: Mapping[str, bool],
    *,
    force: bool,
) -> None:
    """Refuse options that do not go together, and a file that would be replaced."""
    counted = next((option for option, value in counts.items() if value), None)
    printed = next((option for option, value in prints.items() if value), None)
    if counted and limit is not None:
        raise typer.BadParameter(f"{counted} counts all records; leave out one of them", param_hint="--limit")
    if parquet_file is None:
        if force:
            raise typer.BadParameter(
                "this replaces the file of --parquet; leave it out", param_hint="--force"
            )
        return
    if other := counted or printed:
        raise typer.BadParameter(f"leave out {other}, or leave out this", param_hint="--parquet")
    if not parquet_file.absolute().parent.is_dir():
        says = f"there is no folder {parquet_file.absolute().parent}; create it first"
        raise typer.BadParameter(says, param_hint="--parquet")
    if parquet_file.exists() and (parquet_file.is_dir() or not force):
        raise typer.BadParameter(_taken(parquet_file), param_hint="--parquet")


def _taken(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder; give the name of a file"
    return f"there is a file {path} already; give another name, or --force to replace it"


@contextlib.contextmanager
def _asking(settings: Settings, query: Query) -> Iterator[_Asking]:
    """What answers a query; after it, a line on stderr tells of poison."""
    from waybill.exporter.query import answer, poison_note, scan
    from waybill.lineage.catalog import Catalog
    from waybill.lineage.kin import by_records, open_kin

    catalog = Catalog()
    with existing_journal(settings) as journal, contextlib.ExitStack() as stack:
        agreed = as_agreed(settings, journal)
        checked_root(agreed)
        if journal is None or not files_into(journal, agreed.root):
            ask: Ask = partial(scan, agreed.root, access=catalog)
            where, unsettled = f"below {agreed.root}", frozenset[RecordKey]()
        else:
            kin = stack.enter_context(open_kin(agreed.home, query))
            query = by_records(query, kin)
            runs = _read_unsettled(journal, agreed, query)
            derived = [*runs.settled, *runs.open]
            ask = partial(answer, journal, agreed, derived=derived, access=catalog, below=kin.children_of)
            where = f"in {journal.path} and below {agreed.root}"
            unsettled = frozenset(map(record_key, runs.open))
        yield _Asking(ask, where, unsettled, _page(settings, agreed, journal, ask), query)
        if journal is not None and (poison := poison_note(journal)) is not None:
            console.note(poison)
        if catalog.problem is not None:
            console.note(catalog.problem)


@contextlib.contextmanager
def _asking_exported(settings: Settings, exported: str, query: Query) -> Iterator[_Asking]:
    """What answers a query from the files that were exported."""
    from waybill.exporter.query import scan
    from waybill.lineage.catalog import open_exported

    check_home(settings, needed=False)
    catalog = open_exported(exported, settings.home)
    ask = partial(scan, catalog.root, access=catalog)
    yield _Asking(ask, f"at {catalog.name}", frozenset(), None, query)
    if catalog.problem is not None:
        console.note(catalog.problem)


def _readable(tables: Iterator[pa.Table], incomplete: list[WaybillError]) -> Iterator[pa.Table]:
    """The tables of an answer; the reason why records may be missing goes into the list."""
    from waybill.exporter.query import IncompleteError

    try:
        yield from tables
    except IncompleteError as error:
        incomplete.append(error)


def _save(asking: _Asking, query: Query, path: Path, *, replace: bool) -> Callable[[], None]:
    """Write the records that answer a query to a file."""
    from waybill.exporter.query import write_answer

    try:
        rows = write_answer(asking.ask(query), path.absolute(), replace=replace)
    except FileExistsError:
        raise typer.BadParameter(_taken(path), param_hint="--parquet") from None
    return partial(console.note, f"wrote {console.counted(rows, 'record')} to {path}")


def _count(asking: _Asking, query: Query, by: list[Dimension], form: _Form) -> Callable[[], None]:
    """Count the records that answer a query, each once, and return what shows the sums."""
    from waybill.exporter.query import sums_of

    incomplete: list[WaybillError] = []
    sums = sums_of(_readable(asking.ask(query, summed_by=by), incomplete), by)

    def tell() -> None:
        if by:
            counts.show(sums, by, form.zone, as_json=form.as_json, as_csv=form.as_csv)
        else:
            counts.show_total(sums[()], as_json=form.as_json, as_csv=form.as_csv)
        _raise_any(incomplete)

    return tell


def _list(asking: _Asking, query: Query, limit: int | None, form: _Form) -> Callable[[], None]:
    """Find the records that answer a query, and return what shows them."""
    from waybill.exporter.query import cursor_of
    from waybill.facets.arrow import from_table

    incomplete: list[WaybillError] = []
    one_more = msgspec.structs.replace(query, limit=None if limit is None else limit + 1)
    tables = _readable(asking.ask(one_more), incomplete)
    found = [record for table in tables for record in from_table(table)]
    shown = found[:limit]
    cursor = cursor_of(shown[-1]) if len(shown) < len(found) else None
    page = asking.page
    urls = [page.url(record) if page and form.as_json else None for record in shown]
    shown_urls = page.urls(shown) if page and not form.as_json else []

    def tell() -> None:
        if form.as_json:
            for record, url in zip(shown, urls, strict=True):
                more = {"settled": record_key(record) not in asking.unsettled}
                console.json(
                    records.as_plain(record)
                    | more
                    | ({"marquez_page": url} if url else {})
                    | ({"next": cursor} if cursor and record is shown[-1] else {})
                )
        elif shown or form.as_csv:
            records.show(shown, form.zone, asking.unsettled, as_csv=form.as_csv)
        for url in shown_urls:
            console.note(f"on Marquez's page: {url}")
        if cursor:
            which = "oldest" if query.oldest_first else "newest"
            console.note(f"showing the {which} {len(shown):,}; --all shows all, --after {cursor} the next")
        _raise_any(incomplete)
        if not shown:
            _say_that_nothing_is_found(query, asking.where)

    return tell


def _raise_any(errors: list[WaybillError]) -> None:
    for error in errors:
        raise error


def _page(settings: Settings, agreed: Settings, journal: Journal | None, ask: Ask) -> MarquezPage | None:
    """Marquez's page, if its address is known."""
    base = settings.marquez_page_url or agreed.marquez_page_url
    if base is None or journal is None:
        return None
    # It loads what delivers to Marquez, which an answer without links does not need.
    from waybill.exporter import Query
    from waybill.facets.arrow import from_table

    from ..marquez_page import MarquezPage

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


def _refuse_what_has_ended(query: Query, others: Mapping[str, object]) -> None:
    """Refuse conditions that only a record can meet."""
    given = {
        "--state": query.final_state,
        "--not-state": query.not_final_states,
        "--data-sink": query.data_sink,
        "--not-data-sink": query.not_data_sinks,
        "--no-data-sink": query.has_data_sink is False,
        "--missing-sink": query.missing_sink,
        "--input": query.input_dataset,
        "--producer": query.producer,
        "--since": query.since_ms,
        "--until": query.until_ms,
        "--oldest": query.oldest_first,
        "--after": query.after,
        **others,
    }
    if wrong := [option for option, value in given.items() if value]:
        raise typer.BadParameter(
            "open files do not have this yet; leave it out, or leave out --open", param_hint=wrong[0]
        )


def _find_open(
    settings: Settings,
    query: Query,
    limit: int | None,
    form: _Form,
    *,
    is_counted: bool,
) -> None:
    with existing_journal(settings) as journal:
        agreed = as_agreed(settings, journal)
        runs = list_open_files(journal)
    found = [run for run in runs if _is_asked_for(run, query, agreed.annotation_rule)]
    shown = [] if is_counted else found[:limit]
    if is_counted:
        counts.show_total(len(found), as_json=form.as_json, as_csv=form.as_csv)
    elif form.as_json:
        for run in shown:
            console.json(open_files.as_json(run))
    elif shown or form.as_csv:
        open_files.show(shown, form.zone, as_csv=form.as_csv)
    if len(shown) < len(found) and not is_counted:
        says = f"showing {len(shown):,} of {len(found):,}, the longest silent first"
        console.note(f"{says}; --limit COUNT shows more, --all shows all")
    if not found and not is_counted:
        console.note(f"nothing is open in {settings.home}")


def _is_asked_for(run: OpenFile, query: Query, rule: AnnotationRule) -> bool:
    from waybill.exporter.query import spellings_of

    if query.filename is not None and not fnmatch.fnmatchcase(run.filename or "", query.filename):
        return False
    dids = (query.did, run.did), (query.parent_did, run.parent_did)
    if any(asked is not None and told not in spellings_of(asked) for asked, told in dids):
        return False
    if query.created_since_ms is not None and run.began_ms < query.created_since_ms:
        return False
    if query.created_until_ms is not None and run.began_ms >= query.created_until_ms:
        return False
    # What a record would not have is not asked for here either.
    if query.annotations.items() - (rule.kept(run.annotations) or {}).items():
        return False
    wanted = (query.system_name, run.system_name), (query.data_source, run.data_source)
    return all(asked in {None, told} for asked, told in wanted)


def _read_unsettled(journal: Journal, agreed: Settings, query: Query) -> Unsettled:
    from waybill.exporter.query import read_unsettled

    # Read these first: records that are filed meanwhile are then found in the files.
    found = read_unsettled(journal, agreed, query, now_ms=time.time_ns() // 1_000_000)
    if not found.is_whole:
        console.note(
            "too many runs are not in files yet to fit into memory; some runs without the facet are not shown"
        )
    return found


def _say_that_nothing_is_found(query: Query, where: str) -> None:
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
