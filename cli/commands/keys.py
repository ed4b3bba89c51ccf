"""`waybill keys`: keys to send to the collector, query it and administer it."""

from __future__ import annotations

import contextlib
import shlex
from typing import Annotated, Final

import typer

from waybill.collector import Keys, Role
from waybill.transport import Journal, NotFoundError, Settings

from .. import completing, console
from ..arguments import Csv, JsonLines, JsonObject, argument
from ..commanding import Group
from ..home import check_home, existing_journal
from ..options import with_settings
from ..records import as_plain, instant_of, iso

app: Final = Group(help="Create, list and revoke the collector's API keys.")

_Name = Annotated[str, argument("NAME", "A name for the key, for example who uses it.")]


@app.command("add")
@with_settings("home")
def add(
    settings: Settings,
    name: _Name,
    *,
    role: Annotated[
        list[Role] | None,
        typer.Option(help="What the key allows. Required, repeatable. admin allows everything."),
    ] = None,
    as_json: JsonObject = False,
) -> None:
    """Create a key and print it. It is printed only once, because only its hash is stored.

    Once there is a key, every request needs one, except health checks.

    Examples:
      waybill keys add spark --role emit
      export OPENLINEAGE_API_KEY=$(waybill keys add airflow --role emit)
    """
    if not name.strip():
        raise typer.BadParameter(
            "a key needs a name; say who uses it, for example `spark`", param_hint="NAME"
        )
    if not role:
        example = f"waybill keys add {shlex.quote(name)} --role emit"
        what = f"say what the key allows: emit, read or admin, as in `{example}`"
        raise typer.BadParameter(what, param_hint="--role")
    check_home(settings)
    with contextlib.closing(Journal(settings.home)) as journal:
        key = Keys(journal).add(name, role)
    console.result({"name": name, "roles": role, "key": key}, [key], as_json=as_json)


@app.command("list")
@with_settings("home")
def list_keys(settings: Settings, *, as_json: JsonLines = False, as_csv: Csv = False) -> None:
    """List the keys: name, roles, and when each was created.

    Examples:
      waybill keys list
    """
    with existing_journal(settings, to_read=True) as journal:
        keys = Keys(journal).all() if journal else ()
        had_any = journal is not None and Keys(journal).had_any()
    if as_json:
        for key in keys:
            console.json(as_plain({"name": key.name, "roles": key.roles, "created_ms": key.created_ms}))
    elif keys or as_csv:
        written = iso if as_csv else lambda at_ms: instant_of(at_ms)[:19]
        rows = ((key.name, ", ".join(key.roles), written(key.created_ms)) for key in keys)
        console.table(("name", "roles", "made (UTC)"), rows, as_csv=as_csv)
    if had_any and not keys:
        console.note("every key is revoked; the collector lets nobody in until you create one")
    elif not keys:
        console.note("there are no keys; anybody on this machine can use its collector")


@app.command("revoke")
@with_settings("home")
def revoke(
    settings: Settings,
    name: Annotated[str, argument("NAME", "As `list` shows it.", autocompletion=completing.keys)],
    *,
    as_json: JsonObject = False,
) -> None:
    """Revoke a key; a running collector refuses it within two seconds.

    Requests still need a key when the last one is revoked. To let everybody in again, start the collector
    with `waybill serve --without-keys`.

    Examples:
      waybill keys revoke spark
    """
    with existing_journal(settings) as journal:
        revoked = journal is not None and Keys(journal).revoke(name)
    if not revoked:
        raise NotFoundError(f"there is no key {name}; `waybill keys list` shows them")
    console.result({"revoked": name}, [f"{name} is revoked"], as_json=as_json)
