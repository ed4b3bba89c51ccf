"""The application: its commands, and how their errors are shown."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Annotated, Final

import typer

from waybill.cli import console
from waybill.cli.commands.age_off import age_off
from waybill.cli.commands.compact import compact
from waybill.cli.commands.dead_letters import app as dead_letters
from waybill.cli.commands.doctor import doctor
from waybill.cli.commands.drain import drain
from waybill.cli.commands.explain import explain
from waybill.cli.commands.export import export
from waybill.cli.commands.find import find
from waybill.cli.commands.flush import flush
from waybill.cli.commands.keys import app as keys
from waybill.cli.commands.poison import app as poison
from waybill.cli.commands.rebuild import rebuild
from waybill.cli.commands.reconcile import reconcile
from waybill.cli.commands.rejects import app as rejects
from waybill.cli.commands.repair import repair
from waybill.cli.commands.root import app as root
from waybill.cli.commands.serve import serve
from waybill.cli.commands.settings import app as settings
from waybill.cli.commands.spark import app as spark
from waybill.cli.commands.sql import sql
from waybill.cli.commands.status import status
from waybill.cli.commands.verify import verify
from waybill.cli.commands.where import where
from waybill.cli.demo.command import demo
from waybill.cli.dev.command import app as dev
from waybill.transport import SettingsError, WaybillError
from waybill.transport.process import prepare

app: Final = typer.Typer(
    name="waybill",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 failed, or something broken was found; 2 invalid command line or setting; "
    "130 interrupted.",
)


def _say_version(asked: bool) -> None:
    if asked:
        console.line(f"waybill {version('waybill-lineage')}")
        raise typer.Exit


@app.callback()
def _waybill(
    _: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """A durable waybill for every file that flows through a data pipeline.

    Records where it came from, what was done to it and where it ended: a plug-in for OpenLineage with Marquez
    as its backend. Every setting can be an option, WAYBILL_<NAME> in the environment, or a line of
    waybill.yaml.
    """


for _command in (
    demo,
    flush,
    find,
    sql,
    explain,
    rebuild,
    compact,
    export,
    age_off,
    verify,
    repair,
    reconcile,
    status,
    doctor,
    serve,
    drain,
    where,
):
    app.command()(_command)
app.add_typer(settings, name="settings")
app.add_typer(dead_letters, name="dead-letters")
app.add_typer(poison, name="poison")
app.add_typer(rejects, name="rejects")
app.add_typer(keys, name="keys")
app.add_typer(root, name="root")
app.add_typer(spark, name="spark")
app.add_typer(dev, name="dev")


def main() -> None:
    """Run the command line of this process and end it with an exit code that scripts can trust."""
    # An error is one sentence; the rooms' log with its tracebacks is shown only on request.
    logging.getLogger("waybill").addHandler(logging.NullHandler())
    prepare()
    try:
        app(prog_name="waybill")
    except SettingsError as error:
        console.error(str(error))
        sys.exit(console.EXIT_USAGE)
    except WaybillError as error:
        console.error(str(error))
        sys.exit(console.EXIT_FAILED)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        console.error(f"{what}; check that it is there, and its permissions")
        sys.exit(console.EXIT_FAILED)
