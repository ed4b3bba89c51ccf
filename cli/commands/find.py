"""`waybill find`: find files by their records."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
import typer

from waybill.exporter import reading
from waybill.facets import FinalState, record_key
from waybill.transport import Journal, Settings, WaybillError

from .. import completing, console, counts, open_files, records
from ..arguments import FORMS, Csv, JsonLines, check_did, check_span, moment, word
from ..arrow import arrow_alone
from ..home import as_agreed, open_answers
from ..options import with_settings

if TYPE_CHECKING:
    from datetime import tzinfo

    import pyarrow as pa

    from waybill.exporter import Query
    from waybill.exporter.query import Dimension
    from waybill.lineage.answers import FileAnswers, HomeAnswers

    from ..marquez_page import MarquezPage

    Ask = Callable[..., Iterator[pa.Table]]

_SHOWN: Final = 100
"""So many records are shown unless the user asks for another number."""


class _Asking(NamedTuple):
    """What answers the question of a command.

    Attributes:
        answers: answers it.
        where: a phrase for the place that it searches.
        page: Marquez's page, if its address is known.
    """

    answers: HomeAnswers | FileAnswers
    where: str
    page: MarquezPage | None


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
    count: Annotated[
        bool,
        typer.Option(
            "--count", help="Print only how many there are: files for --missing-sink and --open, else paths."
        ),
    ] = False,
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
    with _asking(settings, exported) as asking:
        if is_open:
            tell = _find_open(asking, query, shown, form, is_counted=count)
        elif parquet_file is not None:
            tell = _save(asking, msgspec.structs.replace(query, limit=limit), parquet_file, replace=force)
        elif count or kinds:
            tell = _count(asking, query, kinds, form)
        else:
            tell = _list(asking, query, shown, form)
    for note in asking.answers.notes:
        console.note(note)
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
def _asking(settings: Settings, exported: str | None) -> Iterator[_Asking]:
    """What answers a question."""
    with open_answers(settings, exported) as (answers, where, journal):
        agreed = as_agreed(settings, journal)
        yield _Asking(answers, where, _page(settings, agreed, journal, answers.tables))


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
        rows = write_answer(asking.answers.tables(query), path.absolute(), replace=replace)
    except FileExistsError:
        raise typer.BadParameter(_taken(path), param_hint="--parquet") from None
    return partial(console.note, f"wrote {console.counted(rows, 'record')} to {path}")


def _count(asking: _Asking, query: Query, by: list[Dimension], form: _Form) -> Callable[[], None]:
    """Count what answers a query, and return what shows it: files for `--missing-sink`, else paths."""
    from waybill.exporter.query import sums_of

    incomplete: list[WaybillError] = []
    sums = sums_of(_readable(asking.answers.tables(query, summed_by=by), incomplete), by)
    is_of_files = query.missing_sink is not None
    has_open = is_of_files and asking.answers.knows_open
    unended = len(asking.answers.open_files(query)) if has_open else 0

    def tell() -> None:
        if by:
            counts.show(sums, by, form.zone, as_json=form.as_json, as_csv=form.as_csv)
        else:
            unit = "file" if is_of_files else "path"
            counts.show_total(sums[()] + unended, unit, as_json=form.as_json, as_csv=form.as_csv)
        _raise_any(incomplete)

    return tell


def _list(asking: _Asking, query: Query, limit: int | None, form: _Form) -> Callable[[], None]:
    """Find the records that answer a query, and return what shows them."""
    from waybill.exporter.query import cursor_of
    from waybill.facets.arrow import from_table

    incomplete: list[WaybillError] = []
    one_more = msgspec.structs.replace(query, limit=None if limit is None else limit + 1)
    tables = _readable(asking.answers.tables(one_more), incomplete)
    found = [record for table in tables for record in from_table(table)]
    shown = found[:limit]
    cursor = cursor_of(shown[-1]) if len(shown) < len(found) else None
    page = asking.page
    urls = [page.url(record) if page and form.as_json else None for record in shown]
    shown_urls = page.urls(shown) if page and not form.as_json else []

    def tell() -> None:
        if form.as_json:
            for record, url in zip(shown, urls, strict=True):
                more = {"settled": record_key(record) not in asking.answers.unsettled}
                console.json(
                    records.as_plain(record)
                    | more
                    | ({"marquez_page": url} if url else {})
                    | ({"next": cursor} if cursor and record is shown[-1] else {})
                )
        elif shown or form.as_csv:
            records.show(shown, form.zone, asking.answers.unsettled, as_csv=form.as_csv)
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
    asking: _Asking, query: Query, limit: int | None, form: _Form, *, is_counted: bool
) -> Callable[[], None]:
    """Find the open files that answer a query, and return what shows them."""
    found = asking.answers.open_files(query)
    shown = [] if is_counted else found[:limit]

    def tell() -> None:
        if is_counted:
            counts.show_total(len(found), "file", as_json=form.as_json, as_csv=form.as_csv)
        elif form.as_json:
            for file in shown:
                console.json(open_files.as_json(file))
        elif shown or form.as_csv:
            open_files.show(shown, form.zone, as_csv=form.as_csv)
        if len(shown) < len(found) and not is_counted:
            says = f"showing {len(shown):,} of {len(found):,}, the longest silent first"
            console.note(f"{says}; --limit COUNT shows more, --all shows all")
        if not found and not is_counted:
            console.note(f"nothing is open {asking.where}")

    return tell


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
