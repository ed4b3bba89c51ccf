"""`waybill keys`: who may send to the collector, ask it and administer it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.home import existing_journal
from waybill.cli.options import with_settings
from waybill.cli.records import instant_of
from waybill.collector import Keys, Role
from waybill.transport import Journal, Settings

app: Final = typer.Typer(no_args_is_help=True, help="Make, list and revoke the collector's API keys.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="What people call the key.")]


@app.command("add")
@with_settings("home")
def add(
    settings: Settings,
    name: _Name,
    *,
    role: Annotated[
        list[Role], typer.Option(help="What it is good for; may be repeated. admin is good for all.")
    ],
) -> None:
    """Make a key and print it, once: only its hash is kept.

    Once there is a key, each request needs one, but those for health.

    Examples:

    \b
      waybill keys add spark --role emit
      export OPENLINEAGE_API_KEY=$(waybill keys add airflow --role emit)
    """
    journal = Journal(settings.home)
    try:
        console.line(Keys(journal).add(name, role))
    finally:
        journal.close()


@app.command("list")
@with_settings("home")
def list_keys(
    settings: Settings,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """List the keys: name, roles, and when each was made.

    Examples:

    \b
      waybill keys list
    """
    with existing_journal(settings) as journal:
        keys = Keys(journal).all() if journal else ()
    if as_json:
        for key in keys:
            console.json({"name": key.name, "roles": key.roles, "created_ms": key.created_ms})
    elif keys:
        rows = ((key.name, ", ".join(key.roles), instant_of(key.created_ms)[:19]) for key in keys)
        console.table(("name", "roles", "made"), rows)
    else:
        console.note("there are no keys; anybody on this machine may use its collector")


@app.command("revoke")
@with_settings("home")
def revoke(settings: Settings, name: _Name) -> None:
    """Make a key good for nothing; a running collector follows within two seconds.

    Examples:

    \b
      waybill keys revoke spark
    """
    with existing_journal(settings) as journal:
        revoked = journal is not None and Keys(journal).revoke(name)
    if not revoked:
        console.error(f"there is no key {name}; `waybill keys list` shows them")
        raise typer.Exit(console.EXIT_FAILED)
    console.line(f"{name} is revoked")
