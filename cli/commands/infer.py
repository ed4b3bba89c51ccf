"""`waybill infer`: jobs from the queries that a database has logged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final

import msgspec

from waybill.facets import INFERRED_FACET
from waybill.transport import AdmissionError, Kind, NotFoundError, Settings

from .. import console
from ..arguments import Dialect, JsonLines, argument, flag, valued
from ..home import as_agreed, existing_journal
from ..options import with_settings

if TYPE_CHECKING:
    from waybill.lineage.analyzers import Catalog, Found, QueryLog

_STDIN: Final = "-"
_NAME_BYTES: Final = 6
_PROBLEM_CHARS_MAX: Final = 300


@with_settings("home")
def infer(
    settings: Settings,
    *,
    log: Annotated[str, argument("LOG", "The query log; '-' is stdin.")],
    namespace: Annotated[str, valued("URI", "The database, as events name it, such as postgres://db:5432.")],
    schema: Annotated[str, valued("NAME", "What a table without it is in, such as shop.public.")] = "",
    dialect: Dialect = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only show what would be stored.")] = False,
    as_json: JsonLines = False,
) -> None:
    """Read a database's query log, and store what its statements read and write as jobs.

    Reads PostgreSQL's log on stderr, its csvlog and its jsonlog, and JSON lines that have a query. Statements
    that differ only in their values are one job, which is marked as inferred. What is stored has no values,
    and the time of the log's last change. Exit code 1 if no statement could be read.

    Examples:
      waybill infer postgresql.log --namespace postgres://db:5432 --schema shop.public
      waybill infer queries.jsonl --namespace snowflake://acme --dialect snowflake --dry-run
    """
    from waybill.lineage.analyzers import QueryLog, as_job_event, unread_of
    from waybill.transport.admission import Redaction

    with existing_journal(settings, needed=True, to_read=dry_run) as journal:
        agreed = as_agreed(settings, journal)
        read = QueryLog()
        with _open(log) as stream, console.progress("reading"):
            read.read(stream)
            at = datetime.fromtimestamp(os.fstat(stream.fileno()).st_mtime, UTC)
        redaction, bodies, problems = Redaction(agreed.redact, agreed.bounds), list[bytes](), list[str]()
        for event in _analyze(read, namespace, schema, dialect, problems):
            sent = as_job_event(event, at.isoformat(timespec="milliseconds"))
            try:
                bodies.append(redaction.admit(msgspec.json.encode(sent)))
            except AdmissionError as error:
                problems.append(str(error))
        if journal is not None and not dry_run:
            journal.append_many((Kind.OPENLINEAGE, body, agreed.system_name) for body in bodies)
    partly = 0
    for body in bodies:
        event = msgspec.json.decode(body)
        if as_json:
            console.json(event)
        else:
            console.line(event["job"]["name"])
            for key, mark in (("inputs", "<-"), ("outputs", "->")):
                for one in event[key]:
                    console.line(f"  {mark} {console.shown(one['name'])}")
        partly += bool(unread_of(event))
    _report(read, len(bodies), partly, problems, is_dry=dry_run)
    console.fail_if(problems and not bodies)


def _open(log: str) -> IO[str]:
    if log == _STDIN:
        return open(0, encoding="utf-8", errors="replace", closefd=False)
    try:
        return Path(log).open(encoding="utf-8", errors="replace", newline="")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {log}; give a query log") from None


def _analyze(
    read: QueryLog, namespace: str, schema: str, dialect: str | None, problems: list[str]
) -> Iterator[Found]:
    """The job events of the statements that write; adds why others give none."""
    from waybill.lineage.analyzers import SQL, analyze_all, ask_about, facet_of, inferred, reason_of

    nothing: Catalog = {}
    asked = (
        (plain, ask_about("query", one.text, one.dialect or dialect, namespace, schema), nothing)
        for plain, one in read.statements.items()
    )
    with console.progress("analyzing", total=len(read.statements)) as show:
        for done, result in enumerate(analyze_all(asked), 1):
            show(completed=done)
            plain, statement = result.key, read.statements[result.key]
            found = next((one for one in result.events if one.get("outputs")), None)
            if found is None:
                problems += result.problems[:1]
                read.reading += not result.problems
                continue
            digest = blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=_NAME_BYTES).hexdigest()
            found["job"]["name"] = f"{found['outputs'][0]['name']}.{digest}"
            known = {"dialect": name} if (name := statement.dialect or dialect) else {}
            facets = found["job"]["facets"] = inferred("") | found["job"]["facets"]
            facets[INFERRED_FACET]["reason"] = f"runs in a query log: {statement.times:,}; {reason_of(found)}"
            facets["sql"] = facet_of(SQL, query=plain, **known)
            yield found


def _report(read: QueryLog, jobs: int, partly: int, problems: list[str], *, is_dry: bool) -> None:
    counts = {
        "of which a part could not be read, as their facets say": partly,
        "statements that write nothing": read.reading,
        "that failed when they were run": read.failed,
        "that could not be read": len(problems),
        "that are left out, as the log has too many different ones": read.left_out,
        "lines that are damaged or of another form": read.damaged,
    }
    told = [f"{what}: {count:,}" for what, count in counts.items() if count]
    console.note("; ".join([f"jobs {'that would be ' * is_dry}stored: {jobs:,}", *told]))
    if problems:
        console.note(f"the first that could not be read: {problems[0][:_PROBLEM_CHARS_MAX]}")
