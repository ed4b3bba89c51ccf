"""`waybill dev`: the local stack, up and down, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.findings import report
from waybill.cli.options import with_settings
from waybill.transport import Settings

if TYPE_CHECKING:
    from waybill.cli.dev.compose import Compose

app: Final = typer.Typer(
    no_args_is_help=True,
    help="Marquez with its page, a collector, Prometheus and Grafana on this machine, in Docker.",
)

_File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        help="Waybill's docker-compose.yml. [default: that of this folder, of one above, or of the checkout]",
        show_default=False,
    ),
]
_Services = Annotated[list[str] | None, typer.Argument(metavar="SERVICE", help="Only these.")]


@app.command("up")
def up(services: _Services = None, *, file: _File = None) -> None:
    """Start the stack, and wait until all of it is well.

    The collector's image is built first, from the sources beside the file.

    Examples:

    \b
      waybill dev up
      MARQUEZ_PORT=5050 waybill dev up database marquez page
    """
    from waybill.cli.services import SERVICES

    compose = _compose(file)
    code = compose.run("up", "--detach", "--build", "--wait", *(services or ()))
    if code:
        console.error("not all of it is well; `waybill dev status` says what, `waybill dev logs` why")
        raise typer.Exit(console.EXIT_FAILED)
    console.table(
        ("service", "at", "what"),
        ((one.name, one.url, one.says) for one in SERVICES if not services or one.name in services),
    )


@app.command("status")
@with_settings("home", "marquez_url", "marquez_api_key")
def status(
    settings: Settings,
    *,
    file: _File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Say what is not running, which URL is wrong, and what waits to be delivered.

    It asks Docker, each service at its port (MARQUEZ_PORT and the like, where they are set), the collector,
    MARQUEZ_URL, OPENLINEAGE_URL, and the home. Exit code 1 when something is broken.

    Examples:

    \b
      waybill dev status
      waybill dev status --json | jq '.[] | select(.level != "ok")'
    """
    from waybill.cli.dev.look import look

    report(list(look(settings, file)), as_json=as_json)


@app.command("down")
def down(
    *,
    file: _File = None,
    volumes: Annotated[
        bool, typer.Option("--volumes", help="Forget what they keep, too: the journal, Marquez's database.")
    ] = False,
) -> None:
    """Stop the stack. What it keeps stays, and is there again after the next start.

    Examples:

    \b
      waybill dev down
    """
    compose = _compose(file)
    if compose.run("down", *(["--volumes"] if volumes else [])):
        raise typer.Exit(console.EXIT_FAILED)


@app.command("logs")
def logs(
    services: _Services = None,
    *,
    file: _File = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C.")] = False,
    tail: Annotated[int, typer.Option(metavar="LINES", min=0, help="How many lines of each.")] = 100,
) -> None:
    """Show what the services say.

    Examples:

    \b
      waybill dev logs marquez --tail 20
    """
    compose = _compose(file)
    following = ["--follow"] if follow else []
    if compose.run("logs", "--tail", str(tail), *following, *(services or ())):
        raise typer.Exit(console.EXIT_FAILED)


def _compose(file: Path | None) -> Compose:
    from waybill.cli.dev.compose import Compose, compose_file

    return Compose(compose_file(file))
