"""`waybill rejects`: what the collector refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.arguments import All, JsonLines, choose
from waybill.cli.home import as_agreed, needed_journal
from waybill.cli.options import with_settings
from waybill.cli.records import instant_of
from waybill.transport import AdmissionError, Settings

if TYPE_CHECKING:
    from waybill.collector import Rejects

app: Final = typer.Typer(no_args_is_help=True, help="See, send again or forget what the collector refused.")

_Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="As `list` shows them.")]


@app.command("list")
@with_settings("home")
def list_rejects(settings: Settings, *, as_json: JsonLines = False) -> None:
    """List them, oldest first, each with the reason.

    Examples:

    \b
      waybill rejects list
      waybill rejects list --json | jq .reason
    """
    with _rejects(settings) as rejects:
        found = rejects.all()
    if as_json:
        for reject in found:
            console.json(reject)
    elif found:
        rows = ((one.id, instant_of(one.refused_ms)[:19], one.kind.name.lower(), one.reason) for one in found)
        console.table(("id", "refused", "sent as", "reason"), rows)
    else:
        console.note("there are no rejects")


@app.command("show")
@with_settings("home")
def show(
    settings: Settings, name: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]
) -> None:
    """Print one as it was sent, except for what is redacted; a record is in an array of its own.

    Examples:

    \b
      waybill rejects show 5f0c6a1b2d3e > mended.json
    """
    with _rejects(settings) as rejects:
        (chosen,) = _chosen(rejects, [name], everything=False)
        console.body(rejects.body(chosen) or b"")


@app.command("replay")
@with_settings("home", "system_name", "admit_name_chars", "admit_items", "admit_made_chars")
def replay(
    settings: Settings,
    names: _Ids = None,
    *,
    everything: All = False,
    file: Annotated[
        Path | None, typer.Option("--with", metavar="FILE", help="Take the corrected content from this file.")
    ] = None,
) -> None:
    """Submit them again, as they are or corrected.

    What is accepted now is no longer a reject. Exit code 1 when any is refused again.

    Examples:

    \b
      waybill rejects replay 5f0c6a1b2d3e --with mended.json
      waybill rejects replay --all
    """
    refused = 0
    with _rejects(settings) as rejects:
        chosen = _chosen(rejects, names, everything=everything)
        if file is not None and len(chosen) != 1:
            raise typer.BadParameter("--with is for one reject; give its ID alone")
        for name in chosen:
            body = rejects.body(name) or b"" if file is None else file.read_bytes()
            try:
                rejects.replay(name, body, settings.system_name)
            except AdmissionError as error:
                refused += 1
                console.error(f"{name}: {error}")
    console.line(f"{len(chosen) - refused} of {len(chosen)} are kept")
    if refused:
        raise typer.Exit(console.EXIT_FAILED)


@app.command("drop")
@with_settings("home")
def drop(settings: Settings, names: _Ids = None, *, everything: All = False) -> None:
    """Forget them.

    Examples:

    \b
      waybill rejects drop 5f0c6a1b2d3e
    """
    with _rejects(settings) as rejects:
        chosen = _chosen(rejects, names, everything=everything)
        rejects.drop(chosen)
    console.line(f"{len(chosen)} forgotten")


@contextlib.contextmanager
def _rejects(settings: Settings) -> Iterator[Rejects]:
    from waybill.collector import Rejects
    from waybill.transport.admission import Redaction

    with needed_journal(settings) as journal:
        agreed = as_agreed(settings, journal)
        yield Rejects(journal, Redaction(agreed.redact, agreed.bounds))


def _chosen(rejects: Rejects, names: list[str] | None, *, everything: bool) -> list[str]:
    found = choose(
        rejects.all(),
        names,
        everything=everything,
        id_of=lambda one: one.id,
        what="reject",
        listed_by="waybill rejects list",
    )
    return [reject.id for reject in found]
