"""`waybill keys`: who may send to the collector, query it and administer it."""

from __future__ import annotations

import contextlib
from typing import Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.arguments import JsonLines
from waybill.cli.home import existing_journal
from waybill.cli.options import with_settings
from waybill.cli.records import instant_of
from waybill.collector import Keys, Role
from waybill.transport import Journal, Settings, WaybillError

app: Final = typer.Typer(no_args_is_help=True, help="Make, list and revoke the collector's API keys.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="What people call the key.")]


@app.command("add")
@with_settings("home")
def add(
    settings: Settings,
    name: _Name,
    *,
    role: Annotated[
        list[Role], typer.Option(help="What the key allows; may be repeated. admin allows everything.")
    ],
) -> None:
    """Make a key and print it. It is printed only once, since only its hash is stored.

    As soon as there is a key, every request needs one, except those for health.

    Examples:

    \b
      waybill keys add spark --role emit
      export OPENLINEAGE_API_KEY=$(waybill keys add airflow --role emit)
    """
    with contextlib.closing(Journal(settings.home)) as journal:
        console.line(Keys(journal).add(name, role))


@app.command("list")
@with_settings("home")
def list_keys(settings: Settings, *, as_json: JsonLines = False) -> None:
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
    """Revoke a key; a running collector refuses it within two seconds.

    Examples:

    \b
      waybill keys revoke spark
    """
    with existing_journal(settings) as journal:
        revoked = journal is not None and Keys(journal).revoke(name)
    if not revoked:
        raise WaybillError(f"there is no key {name}; `waybill keys list` shows them")
    console.line(f"{name} is revoked")
