"""`waybill poison`: the entries that a projection cannot apply."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.arguments import All, JsonLines, Timeout, choose
from waybill.cli.commands.flush import flush_with_progress
from waybill.cli.home import existing_journal, needed_journal
from waybill.cli.options import RUNNING, with_settings
from waybill.cli.records import instant_of
from waybill.transport import Journal, Settings
from waybill.transport.journal import Poison

app: Final = typer.Typer(
    no_args_is_help=True, help="See, apply again or give up the entries that a projection cannot apply."
)

_Numbers = Annotated[list[int] | None, typer.Argument(metavar="NUMBER", help="As `list` shows them.")]
_Projection = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of this projection only, as `waybill status` calls it.")
]


@app.command("list")
@with_settings("home")
def list_poison(settings: Settings, *, projection: _Projection = None, as_json: JsonLines = False) -> None:
    """List them, oldest first, each with the reason.

    Examples:

    \b
      waybill poison list
      waybill poison list --json | jq .reason
    """
    with existing_journal(settings) as journal:
        found = journal.poison.all(projection) if journal else []
    if as_json:
        for one in found:
            console.json(one)
    elif found:
        rows = (
            (str(one.seq), one.projection, instant_of(one.at_ms)[:19], str(one.tries), one.reason)
            for one in found
        )
        console.table(("number", "projection", "set aside", "tries", "reason"), rows)
    if not found:
        console.note("there is no poison")


@app.command("show")
@with_settings("home")
def show(
    settings: Settings,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `list` shows it.")],
    *,
    projection: _Projection = None,
) -> None:
    """Print one entry and, on stderr, why it cannot be applied.

    In a file it is byte for byte as the journal has it; on a terminal, control characters are escaped.

    Examples:

    \b
      waybill poison show 4711 > entry.json
    """
    with needed_journal(settings) as journal:
        chosen = _chosen(journal, [number], projection, everything=False)
        body = journal.poison.body(chosen[0].projection, number) or b""
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
) -> None:
    """Have them applied again, and wait for that; one that is damaged is taken as it is.

    What can be applied now is no longer poison. Exit code 1 when any stays.

    Examples:

    \b
      waybill poison retry 4711 4712
      waybill poison retry --all --projection layout
    """
    with needed_journal(settings) as journal:
        chosen = _chosen(journal, numbers, projection, everything=everything)
        for one in chosen:
            journal.poison.retry(one.projection, [one.seq])
        flush_with_progress(settings, timeout_s)
        left = [stays for one in chosen for stays in journal.poison.all(one.projection, one.seq)]
    console.line(f"{len(chosen) - len(left)} of {len(chosen)} are applied")
    for one in left:
        why = f"it failed again, {one.reason}" if one.retry_seq is None else "not tried yet, flush again"
        console.error(f"{one.seq} by {one.projection}: {why}")
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
    yes: Annotated[bool, typer.Option("--yes", help="Give them up without a question.")] = False,
) -> None:
    """Give them up for good: they are never applied.

    Examples:

    \b
      waybill poison drop 4711 --yes
    """
    with needed_journal(settings) as journal:
        chosen = _chosen(journal, numbers, projection, everything=everything)
        if not yes:
            typer.confirm(f"{len(chosen)} will never be applied. Give them up?", abort=True)
        for one in chosen:
            journal.poison.drop(one.projection, [one.seq])
    console.line(f"{len(chosen)} given up")


def _chosen(
    journal: Journal, numbers: list[int] | None, projection: str | None, *, everything: bool
) -> list[Poison]:
    return choose(
        journal.poison.all(projection),
        numbers,
        everything=everything,
        id_of=lambda one: one.seq,
        what="poison",
        listed_by="waybill poison list",
    )
