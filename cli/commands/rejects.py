"""`waybill rejects`: what the collector refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.transport import AdmissionError, Settings

from .. import console
from ..arguments import All, Csv, JsonLines, JsonObject, choose
from ..commanding import Group
from ..home import as_agreed, existing_journal
from ..options import with_settings
from ..records import as_plain, instant_of

if TYPE_CHECKING:
    from waybill.collector import Reject, Rejects

app: Final = Group(help="List, resubmit or drop what the collector refused.")

_Ids = Annotated[list[str] | None, typer.Argument(metavar="ID", help="As `list` shows them.")]


@app.command("list")
@with_settings("home")
def list_rejects(settings: Settings, *, as_json: JsonLines = False, as_csv: Csv = False) -> None:
    """List rejects, oldest first, each with the reason.

    Examples:

    \b
      waybill rejects list
      waybill rejects list --json | jq .reason
    """
    with _rejects(settings) as rejects:
        found = rejects.all() if rejects else []
    if as_json:
        for reject in found:
            console.json(as_plain(reject))
    elif found or as_csv:
        rows = ((one.id, instant_of(one.refused_ms)[:19], one.kind.name.lower(), one.reason) for one in found)
        console.table(("id", "refused (UTC)", "sent as", "reason"), rows, as_csv=as_csv)
    if not found:
        console.note("there are no rejects")


@app.command("show")
@with_settings("home")
def show(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
    *,
    as_json: JsonObject = False,
) -> None:
    """Print one reject as it was sent, except for what is redacted; a record is printed inside an array.

    With --json it is text beside the fields that `list` shows.

    Examples:

    \b
      waybill rejects show 5f0c6a1b2d3e > fixed.json
    """
    with _rejects(settings) as rejects:
        (chosen,) = _chosen(rejects, [name], everything=False)
        body = (rejects.body(name) if rejects else None) or b""
    if as_json:
        console.json(as_plain(chosen) | {"body": body.decode(errors="replace")})
    else:
        console.body(body)


@app.command("replay")
@with_settings("home", "system_name", "admit_name_chars", "admit_items", "admit_made_chars")
def replay(
    settings: Settings,
    names: _Ids = None,
    *,
    everything: All = False,
    file: Annotated[
        Path | None, typer.Option("--with", metavar="FILE", help="Read the corrected content from this file.")
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Submit rejects again, unchanged or corrected.

    One that is accepted now is no longer a reject. Exit code 1 if any is refused again.

    Examples:

    \b
      waybill rejects replay 5f0c6a1b2d3e --with fixed.json
      waybill rejects replay --all
    """
    refused: dict[str, str] = {}
    with _rejects(settings) as rejects:
        chosen = _chosen(rejects, names, everything=everything)
        if file is not None and len(chosen) != 1:
            raise typer.BadParameter("--with takes one reject; give only its ID")
        if rejects is not None:
            for name in (one.id for one in chosen):
                body = rejects.body(name) or b"" if file is None else file.read_bytes()
                try:
                    rejects.replay(name, body, settings.system_name)
                except AdmissionError as error:
                    refused[name] = str(error)
    kept = [one.id for one in chosen if one.id not in refused]
    for name, why in refused.items():
        console.error(f"{name}: {why}")
    if as_json:
        console.json({"kept": kept, "refused": refused})
    else:
        console.line(f"{len(kept)} of {len(chosen)} are kept")
    if refused:
        raise typer.Exit(console.EXIT_FAILED)


@app.command("drop")
@with_settings("home")
def drop(
    settings: Settings, names: _Ids = None, *, everything: All = False, as_json: JsonObject = False
) -> None:
    """Drop rejects.

    Examples:

    \b
      waybill rejects drop 5f0c6a1b2d3e
    """
    with _rejects(settings) as rejects:
        chosen = [one.id for one in _chosen(rejects, names, everything=everything)]
        if rejects is not None:
            rejects.drop(chosen)
    if as_json:
        console.json({"dropped": chosen})
    else:
        console.line(f"{len(chosen)} dropped")


@contextlib.contextmanager
def _rejects(settings: Settings) -> Iterator[Rejects | None]:
    """The home's rejects; None if it has no journal yet."""
    from waybill.collector import Rejects
    from waybill.transport.admission import Redaction

    with existing_journal(settings) as journal:
        if journal is None:
            yield None
            return
        agreed = as_agreed(settings, journal)
        yield Rejects(journal, Redaction(agreed.redact, agreed.bounds))


def _chosen(rejects: Rejects | None, names: list[str] | None, *, everything: bool) -> list[Reject]:
    return choose(
        rejects.all() if rejects else [],
        names,
        everything=everything,
        id_of=lambda one: one.id,
        what="reject",
        listed_by="waybill rejects list",
    )
