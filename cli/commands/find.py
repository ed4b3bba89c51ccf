"""`waybill find`: find files by their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import tzinfo
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec
import typer

from waybill.facets import record_key
from waybill.transport import Journal, Settings, WaybillError

from .. import console, open_files, records
from ..arguments import Csv, JsonLines, Zone, check_did, flag, valued
from ..conditions import with_conditions
from ..home import as_agreed, open_answers
from ..options import with_settings

if TYPE_CHECKING:
    import pyarrow as pa

    from waybill.exporter import Query
    from waybill.exporter.query import Dimension
    from waybill.lineage.answers import FileAnswers

    from ..marquez_page import MarquezPage

    Ask = Callable[..., Iterator[pa.Table]]
    _Answers = FileAnswers

_Tell = Callable[[], str | None]
"""Shows what was found, or returns what to say if that is nothing."""

_SHOWN: Final = 100
"""So many records are shown unless the user asks for another number."""


class _Form(NamedTuple):
    """How an answer is printed."""

    zone: tzinfo | None
    as_json: bool
    as_csv: bool


@with_settings("home", "root", "marquez_page_url", or_exported=True)
@with_conditions
def find(
    settings: Settings,
    exported: str | None,
    query: Query,
    *,
    is_open: Annotated[
        bool, flag("--open", "Files and runs that have not ended, the longest silent first.")
    ] = False,
    tz: Zone = "UTC",
    oldest: Annotated[bool, flag("--oldest", "The oldest first, not the newest.")] = False,
    limit: Annotated[
        int | None,
        valued(
            "COUNT", "Show at most this many records.", min=1, max=1_000_000_000, show_default=str(_SHOWN)
        ),
    ] = None,
    everything: Annotated[bool, flag("--all", "Show all records.")] = False,
    after: Annotated[str | None, valued("CURSOR", "Go on after the page that gave this cursor.")] = None,
    count: Annotated[
        bool,
        flag("--count", "Print only how many there are: files for --missing-sink and --open, else paths."),
    ] = False,
    by: Annotated[
        str | None,
        valued(
            "KIND,...",
            "Print how many records there are of each kind: state, system, source, sink, hour, or "
            "several of them, such as state,sink.",
        ),
    ] = None,
    parquet_file: Annotated[
        Path | None, valued("FILE", "Write all records to this file, as the root's are.", "--parquet")
    ] = None,
    force: Annotated[bool, flag("--force", "Replace the file of --parquet.")] = False,
    as_json: JsonLines = False,
    as_csv: Csv = False,
) -> None:
    """Find files by where they came from, what was done to them, and where they ended.

    Shows one record for each path that a file took, newest first. Accepted records are found at once, even
    before they are in files. A run that has ended but may still change is shown as not settled. A run that is
    no file, as dbt's are, is shown by its job, with all that it read and wrote; --json adds these to its
    record as "job", "inputs" and "outputs".

    If more records follow, a line on stderr gives the cursor with which --after shows them; with --json the
    last record has it as "next". Pages stay together while records arrive. Another line on stderr counts the
    accepted entries that are poison: their records are missing from every answer. Exit code 0 even if nothing
    is found; 1 if a file could not be read, so records may be missing.

    Examples:
      waybill find --state ERROR --since yesterday --tz local
      waybill find --since 24h --by source,state
      waybill find --missing-sink warehouse --data-source sftp-in --since 24h --count
      waybill find --data-sink warehouse --annotation customer=acme --json | jq .filename
      waybill find --root s3://bucket/lineage --filename orders.csv
    """
    from waybill.exporter.query import read_dimensions

    form = _Form(records.zone_of(tz), as_json, as_csv)
    query = msgspec.structs.replace(query, oldest_first=oldest, after=after)
    printed = {"--json": as_json, "--csv": as_csv, "--parquet": parquet_file}
    _refuse_several(limit, {"--count": count, "--by": by}, printed)
    _check_target(parquet_file, replace=force)
    kinds = read_dimensions(by)
    shown = None if everything else limit or _SHOWN
    if is_open:
        _refuse_what_has_ended(query, {"--by": by, "--parquet": parquet_file})
    incomplete: list[WaybillError] = []
    with open_answers(settings, exported) as (answers, where, journal):
        if is_open:
            tell = _find_open(answers, query, shown, form, is_counted=count)
        elif parquet_file is not None:
            tables = answers.tables(msgspec.structs.replace(query, limit=limit))
            tell = partial(console.note, _save(tables, parquet_file, replace=force))
        elif count or kinds:
            tell = _count(answers, query, kinds, form, incomplete)
        else:
            page = _page(settings, as_agreed(settings, journal), journal, answers.tables)
            tell = _list(answers, query, shown, form, page=page, incomplete=incomplete)
    for note in answers.notes:
        console.note(note)
    nothing = tell()
    for error in incomplete:
        raise error
    if nothing is not None:
        for option, did in (("--did", query.did), ("--parent", query.parent_did)):
            if did is not None:
                check_did(did, option)
        console.note(f"{nothing} {where}")


def _refuse_several(limit: int | None, counted: Mapping[str, object], others: Mapping[str, object]) -> None:
    """Refuse options that do not go together."""
    counts_by = next((option for option, value in counted.items() if value), None)
    if counts_by and limit is not None:
        raise typer.BadParameter(
            f"{counts_by} counts all records; leave out one of them", param_hint="--limit"
        )
    forms = [option for option, value in {**counted, **others}.items() if value]
    if "--parquet" in forms and len(forms) > 1:
        raise typer.BadParameter(f"leave out {forms[0]}, or leave out this", param_hint="--parquet")


def _readable(tables: Iterator[pa.Table], incomplete: list[WaybillError]) -> Iterator[pa.Table]:
    """The tables of an answer; the reason why records may be missing goes into the list."""
    from waybill.exporter.query import IncompleteError

    try:
        yield from tables
    except IncompleteError as error:
        incomplete.append(error)


def _count(
    answers: _Answers, query: Query, by: Sequence[Dimension], form: _Form, incomplete: list[WaybillError]
) -> _Tell:
    """Count what answers a query: files for `--missing-sink`, else paths."""
    from waybill.exporter.query import sums_of

    sums = sums_of(_readable(answers.tables(query, summed_by=by), incomplete), by)

    def tell() -> None:
        if by:
            _show_counts(sums, by, form)
        else:
            unit = "file" if query.missing_sink is not None else "path"
            _show_total(sums[()] + len(answers.unended), unit, form)

    return tell


def _list(
    answers: _Answers,
    query: Query,
    limit: int | None,
    form: _Form,
    *,
    page: MarquezPage | None,
    incomplete: list[WaybillError],
) -> _Tell:
    """Find the records that answer a query."""
    from waybill.exporter.query import cursor_of
    from waybill.facets.arrow import from_table

    one_more = msgspec.structs.replace(query, limit=None if limit is None else limit + 1)
    tables = _readable(answers.tables(one_more), incomplete)
    found = [record for table in tables for record in from_table(table)]
    shown = found[:limit]
    runs = answers.job_runs(shown, query)
    cursor = cursor_of(shown[-1]) if len(shown) < len(found) else None
    urls = [page.url(record) if page and form.as_json else None for record in shown]
    shown_urls = page.urls(shown) if page and not form.as_json else []

    def tell() -> str | None:
        if form.as_json:
            for record, url in zip(shown, urls, strict=True):
                more = {"settled": record_key(record) not in answers.unsettled}
                console.json(
                    records.as_plain(record)
                    | records.as_plain(runs.get(record.did, {}))
                    | more
                    | ({"marquez_page": url} if url else {})
                    | ({"next": cursor} if cursor and record is shown[-1] else {})
                )
        elif shown or form.as_csv:
            records.show(shown, form.zone, answers.unsettled, runs, as_csv=form.as_csv)
        for url in shown_urls:
            console.note(f"on Marquez's page: {url}")
        if cursor:
            which = "oldest" if query.oldest_first else "newest"
            console.note(f"showing the {which} {len(shown):,}; --all shows all, --after {cursor} the next")
        return None if shown else "nothing found"

    return tell


def _page(settings: Settings, agreed: Settings, journal: Journal | None, ask: Ask) -> MarquezPage | None:
    """Marquez's page, if its address is known."""
    base = settings.marquez_page_url or agreed.marquez_page_url
    if base is None or journal is None:
        return None
    # It loads what delivers to Marquez, which an answer without links does not need.
    from ..marquez_page import MarquezPage

    return MarquezPage(base, journal, ask)


def _refuse_what_has_ended(query: Query, others: Mapping[str, object]) -> None:
    """Refuse what only files that have ended have."""
    from waybill.lineage.answers import check_open

    orders = {"--oldest": query.oldest_first, "--after": query.after, **others}
    if wrong := [option for option, value in orders.items() if value]:
        raise typer.BadParameter(
            "open files do not have this yet; leave it out, or leave out --open", param_hint=wrong[0]
        )
    check_open(query)


def _find_open(answers: _Answers, query: Query, limit: int | None, form: _Form, *, is_counted: bool) -> _Tell:
    """Find the open files that answer a query."""
    found = answers.open_files(query)
    if is_counted:
        return partial(_show_total, len(found), "file", form)
    runs = answers.job_runs(found[:limit], query)

    def tell() -> str | None:
        open_files.show(found[:limit], runs, zone=form.zone, as_json=form.as_json, as_csv=form.as_csv)
        if limit is not None and limit < len(found):
            says = f"showing {limit:,} of {len(found):,}, the longest silent first"
            console.note(f"{says}; --limit COUNT shows more, --all shows all")
        return None if found else "nothing is open"

    return tell


def _show_total(count: int, unit: str, form: _Form) -> None:
    """Print how many there are, and on a terminal of what: programs that read it want a number."""
    if form.as_json:
        console.json({"count": count})
    elif form.as_csv:
        console.table(("count",), [(str(count),)], as_csv=True)
    else:
        console.line(console.counted(count, unit) if console.on_terminal() else str(count))


def _show_counts(
    sums: Mapping[tuple[str | int | None, ...], int], by: Sequence[Dimension], form: _Form
) -> None:
    """Print the number of records of each kind, in a line each; in JSON as records name their fields."""
    if form.as_json:
        names = [one.field for one in by]
        for kind, count in sums.items():
            values = (records.iso(value) if isinstance(value, int) else value for value in kind)
            console.json(dict(zip(names, values, strict=True)) | {"count": count})
        return
    headings = [f"hour ({records.name_of(form.zone)})" if one == "hour" else one.value for one in by]
    rows = ([*(_text_of(value, form.zone) for value in kind), str(count)] for kind, count in sums.items())
    console.table([*headings, "count"], rows, as_csv=form.as_csv)


def _text_of(value: str | int | None, zone: tzinfo | None) -> str:
    return records.instant_of(value, zone)[:16] if isinstance(value, int) else value or ""


def _check_target(path: Path | None, *, replace: bool) -> None:
    """Raise a `typer.BadParameter` if an answer cannot be written to the file of `--parquet`."""
    if path is None:
        if replace:
            says = "this replaces the file of --parquet; leave it out"
            raise typer.BadParameter(says, param_hint="--force")
        return
    if not path.absolute().parent.is_dir():
        says = f"there is no folder {path.absolute().parent}; create it first"
        raise typer.BadParameter(says, param_hint="--parquet")
    if path.exists() and (path.is_dir() or not replace):
        raise typer.BadParameter(_taken(path), param_hint="--parquet")


def _save(tables: Iterator[pa.Table], path: Path, *, replace: bool) -> str:
    """Write the records of an answer to a file, and return a sentence about it."""
    from waybill.exporter.query import write_answer

    try:
        rows = write_answer(tables, path.absolute(), replace=replace)
    except FileExistsError:
        raise typer.BadParameter(_taken(path), param_hint="--parquet") from None
    return f"wrote {console.counted(rows, 'record')} to {path}"


def _taken(path: Path) -> str:
    if path.is_dir():
        return f"{path} is a folder; give the name of a file"
    return f"there is a file {path} already; give another name, or --force to replace it"
