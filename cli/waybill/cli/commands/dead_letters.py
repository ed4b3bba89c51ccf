"""`waybill dead-letters`: the events that a backend refused for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.arguments import All, JsonLines, Timeout, choose
from waybill.cli.commands.flush import flush_with_progress
from waybill.cli.home import existing_journal, needed_journal
from waybill.cli.options import RUNNING, with_settings
from waybill.cli.records import instant_of
from waybill.transport import Journal, Settings
from waybill.transport.config import MARQUEZ

if TYPE_CHECKING:
    from waybill.marquez import DeadLetter

app: Final = typer.Typer(
    no_args_is_help=True, help="See, send again or forget the events that the backend refused for good."
)

_Numbers = Annotated[list[int] | None, typer.Argument(metavar="NUMBER", help="As `list` shows them.")]
_Backend = Annotated[
    str, typer.Option(metavar="NAME", help="The backend that refused them, as `waybill status` calls it.")
]


@app.command("list")
@with_settings("home")
def list_letters(settings: Settings, *, backend: _Backend = MARQUEZ, as_json: JsonLines = False) -> None:
    """List them, oldest first, each with what the backend said.

    Examples:

    \b
      waybill dead-letters list
      waybill dead-letters list --json | jq .words
    """
    from waybill.marquez import dead_letters

    with existing_journal(settings) as journal:
        letters = dead_letters(journal, backend) if journal else []
    if as_json:
        for letter in letters:
            console.json(letter)
    elif letters:
        rows = (
            (str(one.seq), instant_of(one.parked_ms)[:19], str(one.status or "none"), one.key, one.words)
            for one in letters
        )
        console.table(("number", "parked", "status", "about", "the backend's words"), rows)
    if not letters:
        console.note("there are no dead letters")


@app.command("show")
@with_settings("home")
def show(
    settings: Settings,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `list` shows it.")],
    *,
    backend: _Backend = MARQUEZ,
) -> None:
    """Print one event, byte for byte as it was accepted.

    Examples:

    \b
      waybill dead-letters show 4711 | jq .
    """
    from waybill.marquez import dead_letter_body

    with needed_journal(settings) as journal:
        _chosen(journal, [number], backend, everything=False)
        console.body(dead_letter_body(journal, number, backend) or b"")


@app.command("replay")
@with_settings(*RUNNING)
def replay(
    settings: Settings,
    numbers: _Numbers = None,
    *,
    everything: All = False,
    backend: _Backend = MARQUEZ,
    timeout_s: Timeout = None,
) -> None:
    """Send them again, and wait for the answers.

    An event that the backend takes now is no longer a dead letter. One that it refuses again stays, with the
    new answer. Exit code 1 when any stays.

    Examples:

    \b
      waybill dead-letters replay 4711 4712
      waybill dead-letters replay --all
    """
    from waybill.marquez import dead_letters, replay_dead_letters

    with needed_journal(settings) as journal:
        chosen = _chosen(journal, numbers, backend, everything=everything)
        replay_dead_letters(journal, chosen, backend)
        report = flush_with_progress(settings, timeout_s)
        left = [letter for letter in dead_letters(journal, backend) if letter.seq in chosen]
    console.line(f"{len(chosen) - len(left)} of {len(chosen)} are delivered")
    for letter in left:
        tried_again = letter.parked_ms > chosen[letter.seq].parked_ms
        why = (
            f"refused again, {letter.words}" if tried_again else "not sent yet, it goes with the next events"
        )
        console.error(f"{letter.seq}: {why}")
    if left and backend in report.problems:
        console.error(report.problems[backend])
    if left:
        raise typer.Exit(console.EXIT_FAILED)


@app.command("drop")
@with_settings("home")
def drop(
    settings: Settings, numbers: _Numbers = None, *, everything: All = False, backend: _Backend = MARQUEZ
) -> None:
    """Forget them. Their records stay in the provenance files.

    Examples:

    \b
      waybill dead-letters drop 4711
    """
    from waybill.marquez import drop_dead_letters

    with needed_journal(settings) as journal:
        chosen = _chosen(journal, numbers, backend, everything=everything)
        drop_dead_letters(journal, chosen, backend)
    console.line(f"{len(chosen)} forgotten")


def _chosen(
    journal: Journal, numbers: list[int] | None, backend: str, *, everything: bool
) -> dict[int, DeadLetter]:
    from waybill.marquez import dead_letters

    letters = choose(
        dead_letters(journal, backend),
        numbers,
        everything=everything,
        id_of=lambda one: one.seq,
        what="dead letter",
        listed_by="waybill dead-letters list",
    )
    return {letter.seq: letter for letter in letters}
