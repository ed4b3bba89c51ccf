"""`waybill dev`: start and stop the local stack, and report its problems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.transport import Settings, WaybillError

from .. import console
from ..arguments import Csv, JsonArray, JsonObject
from ..commanding import Group
from ..findings import report
from ..home import check_home
from ..options import with_settings
from ..services import SERVICES

if TYPE_CHECKING:
    from .compose import Compose

app: Final = Group(
    help="Run Marquez with its web page, a collector, Prometheus and Grafana in Docker.",
)

_File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Waybill's docker-compose.yml. [default: in this folder, in a parent, or in the checkout]",
        show_default=False,
    ),
]
_Services = Annotated[list[str] | None, typer.Argument(metavar="SERVICE", help="Only these.")]


@app.command("up")
def up(
    services: _Services = None, *, file: _File = None, as_json: JsonArray = False, as_csv: Csv = False
) -> None:
    """Start the stack, and wait until every service is healthy.

    Builds the collector's image first, from the sources beside the file.

    Examples:

    \b
      waybill dev up
      MARQUEZ_PORT=5050 waybill dev up database marquez page
    """
    if _compose(file).run("up", "--detach", "--build", "--wait", *(services or ()), quiet=as_json or as_csv):
        raise WaybillError(
            "a service is not healthy; `waybill dev status` says which, and `waybill dev logs` why"
        )
    running = [one for one in SERVICES if not services or one.name in services]
    if as_json:
        console.json([{"service": one.name, "url": one.url, "what": one.says} for one in running])
    else:
        rows = ((one.name, one.url, one.says) for one in running)
        console.table(("service", "at", "what"), rows, as_csv=as_csv)


@app.command("status")
@with_settings("home", "marquez_url", "marquez_api_key")
def status(settings: Settings, *, file: _File = None, as_json: JsonArray = False) -> None:
    """Report what is not running, which URL is wrong, and what waits to be delivered.

    Checks Docker, each service at its port (MARQUEZ_PORT and the like, if they are set), the collector,
    MARQUEZ_URL, OPENLINEAGE_URL, and the home. Exit code 1 if something is broken.

    Examples:

    \b
      waybill dev status
      waybill dev status --json | jq '.[] | select(.level != "ok")'
    """
    from .checks import look

    check_home(settings, needed=False)
    report(list(look(settings, file)), as_json=as_json)


@app.command("down")
def down(
    *,
    file: _File = None,
    volumes: Annotated[
        bool, typer.Option("--volumes", help="Also delete its data: the journal and Marquez's database.")
    ] = False,
    as_json: JsonObject = False,
) -> None:
    """Stop the stack. Its data stays for the next start.

    Examples:

    \b
      waybill dev down
    """
    if _compose(file).run("down", *(["--volumes"] if volumes else []), quiet=as_json):
        raise typer.Exit(console.EXIT_FAILED)
    if as_json:
        console.json({"running": [], "volumes_deleted": volumes})


@app.command("logs")
def logs(
    services: _Services = None,
    *,
    file: _File = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new lines until Ctrl-C.")] = False,
    tail: Annotated[
        int, typer.Option(metavar="LINES", min=0, help="How many lines to show of each service.")
    ] = 100,
) -> None:
    """Show the services' logs.

    Examples:

    \b
      waybill dev logs marquez --tail 20
    """
    following = ["--follow"] if follow else []
    if _compose(file).run("logs", "--tail", str(tail), *following, *(services or ())):
        raise typer.Exit(console.EXIT_FAILED)


def _compose(file: Path | None) -> Compose:
    from .compose import Compose, compose_file

    return Compose(compose_file(file))
