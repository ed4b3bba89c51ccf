"""`waybill dead-letters`: the events that a backend refuses permanently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.transport import Journal, Settings
from waybill.transport.config import MARQUEZ

from .. import completing, console
from ..arguments import All, Csv, JsonLines, JsonObject, Timeout, choose
from ..commanding import Group
from ..home import check_backend, existing_journal
from ..options import RUNNING, with_settings
from ..records import as_plain, instant_of
from .flush import flush_with_progress

if TYPE_CHECKING:
    from waybill.marquez import DeadLetter

app: Final = Group(help="List, resend or drop the events that a backend refuses permanently.")

_Numbers = Annotated[list[int] | None, typer.Argument(metavar="NUMBER", help="As `list` shows them.")]
_Backend = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        autocompletion=completing.backends,
        help="The backend that refused them, by its name in `waybill status`.",
    ),
]


@app.command("list")
@with_settings("home")
def list_letters(
    settings: Settings, *, backend: _Backend = MARQUEZ, as_json: JsonLines = False, as_csv: Csv = False
) -> None:
    """List dead letters, oldest first, each with the backend's response.

    Examples:

    \b
      waybill dead-letters list
      waybill dead-letters list --json | jq .words
    """
    with existing_journal(settings) as journal:
        letters = _letters(settings, journal, backend)
    if as_json:
        for letter in letters:
            console.json(as_plain(letter))
    elif letters or as_csv:
        rows = (
            (str(one.seq), instant_of(one.parked_ms)[:19], str(one.status or "none"), one.key, one.words)
            for one in letters
        )
        columns = ("number", "parked (UTC)", "status", "about", "the backend's words")
        console.table(columns, rows, as_csv=as_csv)
    if not letters:
        console.note("there are no dead letters")


@app.command("show")
@with_settings("home")
def show(
    settings: Settings,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="As `list` shows it.")],
    *,
    backend: _Backend = MARQUEZ,
    as_json: JsonObject = False,
) -> None:
    """Print one event, byte for byte as it was accepted; with --json, as text beside the backend's response.

    Examples:

    \b
      waybill dead-letters show 4711 | jq .
    """
    from waybill.marquez import dead_letter_body

    with existing_journal(settings) as journal:
        letter = _chosen(settings, journal, [number], backend, everything=False)[number]
        body = (dead_letter_body(journal, number, backend) if journal else None) or b""
    if as_json:
        console.json(as_plain(letter) | {"body": body.decode(errors="replace")})
    else:
        console.body(body)


@app.command("replay")
@with_settings(*RUNNING)
def replay(
    settings: Settings,
    numbers: _Numbers = None,
    *,
    everything: All = False,
    backend: _Backend = MARQUEZ,
    timeout_s: Timeout = None,
    as_json: JsonObject = False,
) -> None:
    """Send dead letters again, and wait for the responses.

    An event that the backend now accepts is no longer a dead letter. One that it refuses again stays, with
    the new response. Exit code 1 if any stays.

    Examples:

    \b
      waybill dead-letters replay 4711 4712
      waybill dead-letters replay --all
    """
    from waybill.marquez import dead_letters, replay_dead_letters

    with existing_journal(settings) as journal:
        chosen = _chosen(settings, journal, numbers, backend, everything=everything)
        left: dict[int, str] = {}
        problem = None
        if journal is not None and chosen:
            replay_dead_letters(journal, chosen, backend)
            problem = flush_with_progress(settings, timeout_s).problems.get(backend)
            left = {
                one.seq: _why_left(one, chosen[one.seq])
                for one in dead_letters(journal, backend)
                if one.seq in chosen
            }
    delivered = [number for number in chosen if number not in left]
    if as_json:
        console.json({"delivered": delivered, "left": left})
    else:
        console.line(f"{len(delivered)} of {len(chosen)} are delivered")
    for number, why in left.items():
        console.error(f"{number}: {why}")
    if left:
        if problem:
            console.error(problem)
        raise typer.Exit(console.EXIT_FAILED)


@app.command("drop")
@with_settings("home")
def drop(
    settings: Settings,
    numbers: _Numbers = None,
    *,
    everything: All = False,
    backend: _Backend = MARQUEZ,
    as_json: JsonObject = False,
) -> None:
    """Drop dead letters. Their records stay in the provenance files.

    Examples:

    \b
      waybill dead-letters drop 4711
    """
    from waybill.marquez import drop_dead_letters

    with existing_journal(settings) as journal:
        chosen = _chosen(settings, journal, numbers, backend, everything=everything)
        if journal is not None:
            drop_dead_letters(journal, chosen, backend)
    if as_json:
        console.json({"dropped": list(chosen)})
    else:
        console.line(f"{len(chosen)} dropped")


def _letters(settings: Settings, journal: Journal | None, backend: str) -> list[DeadLetter]:
    from waybill.marquez import dead_letters

    check_backend(settings, journal, backend)
    return dead_letters(journal, backend) if journal else []


def _chosen(
    settings: Settings, journal: Journal | None, numbers: list[int] | None, backend: str, *, everything: bool
) -> dict[int, DeadLetter]:
    letters = choose(
        _letters(settings, journal, backend),
        numbers,
        everything=everything,
        id_of=lambda one: one.seq,
        what="dead letter",
        listed_by="waybill dead-letters list",
    )
    return {letter.seq: letter for letter in letters}


def _why_left(now: DeadLetter, before: DeadLetter) -> str:
    if now.parked_ms > before.parked_ms:
        return f"refused again, {now.words}"
    return "not sent yet; it goes out with the next events"
