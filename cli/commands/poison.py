"""`waybill poison`: the entries that a projection cannot apply."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import typer

from waybill.transport import Journal, Settings
from waybill.transport.journal import Poison

from .. import completing, console
from ..arguments import All, Csv, JsonLines, JsonObject, Timeout, choose
from ..commanding import Group
from ..home import check_projection, existing_journal
from ..options import RUNNING, with_settings
from ..records import as_plain, instant_of
from .flush import flush_with_progress

app: Final = Group(help="List, retry or drop the entries that a projection cannot apply.")

_Numbers = Annotated[list[int] | None, typer.Argument(metavar="NUMBER", help="As `list` shows them.")]
_Projection = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=completing.projections,
        help="Only this projection, by its name in `waybill status`.",
    ),
]


@app.command("list")
@with_settings("home")
def list_poison(
    settings: Settings, *, projection: _Projection = None, as_json: JsonLines = False, as_csv: Csv = False
) -> None:
    """List poison entries, oldest first, each with the reason.

    Examples:

    \b
      waybill poison list
      waybill poison list --json | jq .reason
    """
    with existing_journal(settings) as journal:
        found = _poison(journal, projection)
    if as_json:
        for one in found:
            console.json(as_plain(one))
    elif found or as_csv:
        rows = (
            (str(one.seq), one.projection, instant_of(one.at_ms)[:19], str(one.tries), one.reason)
            for one in found
        )
        columns = ("number", "projection", "set aside (UTC)", "tries", "reason")
        console.table(columns, rows, as_csv=as_csv)
    if not found:
        console.note("there is no poison")


@app.command("show")
@with_settings("home")
def show(
    settings: Settings,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `list` shows it.")],
    *,
    projection: _Projection = None,
    as_json: JsonObject = False,
) -> None:
    """Print one entry and, on stderr, why it cannot be applied.

    In a file it is byte for byte what the journal holds; on a terminal, control characters are escaped. With
    --json it is text beside the fields that `list` shows for the first projection.

    Examples:

    \b
      waybill poison show 4711 > entry.json
    """
    with existing_journal(settings) as journal:
        chosen = _chosen(journal, [number], projection, everything=False)
        body = (journal.poison.body(chosen[0].projection, number) if journal else None) or b""
    if as_json:
        console.json(as_plain(chosen[0]) | {"body": body.decode(errors="replace")})
        return
    for one in chosen:
        console.note(f"{one.projection}: {one.reason}")
    console.body(body)


@app.command("retry")
@with_settings(*RUNNING)
def retry(
    settings: Settings,
    numbers: _Numbers = None,
    *,
    everything: All = False,
    projection: _Projection = None,
    timeout_s: Timeout = None,
    as_json: JsonObject = False,
) -> None:
    """Apply poison entries again, and wait; a damaged entry is applied as it is.

    An entry that can now be applied is no longer poison. Exit code 1 if any stays.

    Examples:

    \b
      waybill poison retry 4711 4712
      waybill poison retry --all --projection layout
    """
    left: list[Poison] = []
    with existing_journal(settings) as journal:
        chosen = _chosen(journal, numbers, projection, everything=everything)
        if journal is not None and chosen:
            for one in chosen:
                journal.poison.retry(one.projection, [one.seq])
            flush_with_progress(settings, timeout_s)
            left = [stays for one in chosen for stays in journal.poison.all(one.projection, one.seq)]
    stay = {(one.seq, one.projection) for one in left}
    applied = [one for one in chosen if (one.seq, one.projection) not in stay]
    if as_json:
        console.json(
            {"applied": _named(applied), "left": [_named([one])[0] | {"why": _why_left(one)} for one in left]}
        )
    else:
        console.line(f"{len(applied)} of {len(chosen)} are applied")
    for one in left:
        console.error(f"{one.seq} by {one.projection}: {_why_left(one)}")
    if left:
        raise typer.Exit(console.EXIT_FAILED)


@app.command("drop")
@with_settings("home")
def drop(
    settings: Settings,
    numbers: _Numbers = None,
    *,
    everything: All = False,
    projection: _Projection = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonObject = False,
) -> None:
    """Drop poison entries for good: they are never applied.

    Examples:

    \b
      waybill poison drop 4711 --yes
    """
    with existing_journal(settings) as journal:
        chosen = _chosen(journal, numbers, projection, everything=everything)
        if chosen and not yes:
            typer.confirm(f"{len(chosen)} will never be applied. Drop them?", abort=True, err=True)
        if journal is not None:
            for one in chosen:
                journal.poison.drop(one.projection, [one.seq])
    if as_json:
        console.json({"dropped": _named(chosen)})
    else:
        console.line(f"{len(chosen)} dropped")


def _poison(journal: Journal | None, projection: str | None) -> list[Poison]:
    check_projection(journal, projection)
    return journal.poison.all(projection) if journal else []


def _named(found: Iterable[Poison]) -> list[dict[str, int | str]]:
    return [{"number": one.seq, "projection": one.projection} for one in found]


def _why_left(one: Poison) -> str:
    return f"failed again, {one.reason}" if one.retry_seq is None else "not tried yet; flush again"


def _chosen(
    journal: Journal | None, numbers: list[int] | None, projection: str | None, *, everything: bool
) -> list[Poison]:
    return choose(
        _poison(journal, projection),
        numbers,
        everything=everything,
        id_of=lambda one: one.seq,
        what="poison",
        listed_by="waybill poison list",
    )
