"""The application: its commands, and the display of their errors."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Annotated, Any, Final

import typer

from waybill.transport import MissingExtraError, NotFoundError, SettingsError, WaybillError
from waybill.transport.errors import NameTakenError, sentence_of
from waybill.transport.process import prepare

from . import console
from .arguments import flag
from .commanding import CommandGroup, Deferred, Group

OF_USAGE: Final = (SettingsError, NotFoundError, NameTakenError, MissingExtraError)
"""Errors that a different command line, setting or environment fixes: exit code 2. For all others it is 1."""

COMMANDS: Final = {
    "init": "Ask for the main settings, write a commented waybill.yaml, and create the home.",
    "demo": "Follow a year of real flights through a PySpark pipeline.",
    "run": "Run a package's program, and keep when it began, how it ended, and what happened within it.",
    "package": "Write, check, list and show the manifests of packages.",
    "flush": "Drain every buffer, compact every hour, and list the new files.",
    "find": "Find files by where they came from, what was done to them, and where they ended.",
    "trace": "Show the journey of a file: where it came from, what was done to it, and what became of it.",
    "lineage": "Show what a dataset or a job depends on, what depends on it, and how it ran last.",
    "plan": "Show what SQL or a dbt project would read and write, before it ever runs.",
    "infer": "Read a database's query log, and store what its statements read and write as jobs.",
    "analyzers": "List the analyzers: what each reads from events, and how sure it is.",
    "impact": "Show what a change of a dataset, a column or a job reaches, and whom to ask about it.",
    "origins": "Show where the values of a column come from, step by step.",
    "datasets": "List datasets that nobody uses, or nobody writes any more, or jobs that do the same.",
    "diff": "Show in which two runs differ: job, owners, SQL, inputs, outputs, and columns of datasets.",
    "alias": "Declare that two names are one dataset.",
    "search": "Find datasets and jobs by words of their names, columns, tags, owners and descriptions.",
    "mcp": "Let a language model ask where files and datasets came from, and what depends on them.",
    "fingerprint": "Print the fingerprint of each file's content, to compare files.",
    "duplicates": "List the files that have the same content as another file.",
    "close-stale": "End files and runs that have been open and silent for a long time.",
    "sql": "Query the compacted files with SQL.",
    "explain": "Show the proof behind a file's records, from the stored events to the rows.",
    "rebuild": "Rebuild the provenance files from stored events.",
    "compact": "Compact every raw file of a root, including the current hour's.",
    "export": "Copy new and changed compacted files to a folder or an object store.",
    "age-off": "Remove compacted files older than the age-off.",
    "verify": "Prove that a root's files are intact, and that two roots hold the same records.",
    "repair": "Restore what a root has lost, from its archive and the home's journal.",
    "reconcile": "List delivered events and jobs that are missing from Marquez.",
    "slis": "Show the service levels of lineage, and whether their objectives are met.",
    "status": "Show what the journal holds and how far each projection has got.",
    "doctor": "Check this machine and these settings.",
    "serve": "Accept OpenLineage events and DeltaFi provenance over HTTP until SIGTERM or Ctrl-C.",
    "drain": "Stop the home's collector, flush everything, and report what is left.",
    "schema": "Print the JSON Schema of one of Waybill's facets, or of manifests, or list them.",
    "where": "Show where an acknowledged entry is: in the journal, in which file, exported, delivered.",
    "settings": "Show each setting, its value, and where the value came from.",
    "dead-letters": "List, show, retry or drop the events that a backend refuses permanently.",
    "poison": "List, show, retry or drop the entries that a projection cannot apply.",
    "rejects": "List, show, retry or drop what the collector refused.",
    "keys": "Create, list and revoke the collector's API keys.",
    "root": "Check that the root is the right one, or adopt another.",
    "spark": "Correct the Spark listener's results from Spark's own event logs.",
    "dev": "Run Marquez with its web page, a collector, Prometheus and Grafana in Docker.",
}
"""Every command, in the order of the help, with the first line of its own help."""

_ELSEWHERE: Final = {"demo": "waybill.cli.demo.command"}
"""The modules of the commands that have a package of their own."""


class _Commands(CommandGroup):
    """All commands, each loaded on first use."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401 - those of its base
        modules = {name: f"waybill.cli.commands.{name.replace('-', '_')}" for name in COMMANDS} | _ELSEWHERE
        commands = [Deferred(name, help=text, module=modules[name]) for name, text in COMMANDS.items()]
        super().__init__(**{**given, "commands": commands})


app: Final = Group(
    name="waybill",
    cls=_Commands,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 failed, or found something broken; 2 invalid command line or setting; "
    "130 interrupted; 141 nobody reads the output any more. Pages such as docs/marquez.md are in Waybill's "
    "source repository.",
)


def _say_version(asked: bool) -> None:
    if asked:
        console.line(f"waybill {version('waybill-lineage')}")
        raise typer.Exit


@app.callback()
def _waybill(
    _: Annotated[bool, flag("--version", "Show the version.", callback=_say_version, is_eager=True)] = False,
) -> None:
    """A durable waybill for every file that flows through a data pipeline.

    Records where it came from, what was done to it and where it ended: a plug-in for OpenLineage with Marquez
    as its backend. Every setting can be an option, WAYBILL_<NAME> in the environment, or a line of
    waybill.yaml.
    """


def main() -> None:
    """Run the command line of this process, and say what it raises."""
    # An error is one sentence; the rooms' log with its tracebacks is shown only on request.
    logging.getLogger("waybill").addHandler(logging.NullHandler())
    prepare()
    try:
        app(prog_name="waybill")
    except WaybillError as error:
        from waybill.exporter.query import InvalidQueryError  # which few commands need

        console.error(str(error))
        is_usage = isinstance(error, (*OF_USAGE, InvalidQueryError))
        sys.exit(console.EXIT_USAGE if is_usage else console.EXIT_FAILED)
    except OSError as error:
        console.error(sentence_of(error))
        sys.exit(console.EXIT_FAILED)
