"""`waybill verify`: is what is there right, and is it the same as over there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from waybill.cli import console, records
from waybill.cli.comparison_roots import fetched, has_aged_off, rebuilt
from waybill.cli.home import as_agreed, existing_journal
from waybill.cli.options import with_settings
from waybill.facets import ProvenanceRecord
from waybill.transport import Settings


class _Summary(msgspec.Struct, tag="summary", tag_field="kind"):
    """What a verification came to, as its last line of JSON."""

    files: int = 0
    rows: int = 0
    findings: int = 0
    differences: int = 0
    head: str | None = None


@with_settings("home", "root", "system_name", "provenance_annotations_allowed")
def verify(
    settings: Settings,
    *,
    ours: Annotated[
        str | None,
        typer.Argument(
            metavar="A",
            help="The root to verify, or s3://bucket/folder, gs://…, az://….",
            show_default="the root set",
        ),
    ] = None,
    theirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="B",
            help="A root, or the URL of an exported one, that must hold the same records; with --from which "
            "source: a root, paths of files, or a URL.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Stored events that must give the same records: 'journal', 'events', 'jsonl', 'marquez' or "
            "'marquez-db', as `waybill rebuild` reads them.",
        ),
    ] = None,
    seen: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="An earlier head of A's ledger: it must be in there."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            metavar="COUNT", min=0, help="The most findings and the most differences to print; all count."
        ),
    ] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, the last one a summary.")
    ] = False,
) -> None:
    """Prove that a root's files are right, and that two roots hold the same records.

    Every file is read: its seal, its schema, the system, hour and order of its rows, repeats, raw files
    left beside the compacted ones. The ledger tells what was altered, removed or slipped in; note its
    head elsewhere and give it back with --seen, and nobody can have rewritten what came before. With B,
    both are verified and then compared record by record, in whichever files the records are. What is in
    an object store is fetched into a temporary folder and verified there, its manifests too. With --from
    the records are compared with those that the source's events rebuild to, in a temporary folder; what
    has aged off is no difference. Flush first, so that what is only in the journal is none either. Exit
    code 1 when anything is found.

    Examples:

    \b
      waybill verify
      waybill verify /data/lineage /mnt/copy --json | jq -c 'select(.kind != "summary")'
      waybill verify /data/lineage s3://bucket/lineage
      waybill verify --from journal
      waybill verify /data/lineage http://localhost:5000 --from marquez
    """
    from waybill.exporter.object_stores import local_or_url

    with existing_journal(settings) as journal:
        agreed = as_agreed(settings, journal)
    places = theirs or []
    if source is None and len(places) > 1:
        raise typer.BadParameter("two roots are compared; give one B", param_hint="B")
    wanted = [local_or_url(ours) if ours else agreed.root]
    if source is None:
        wanted += map(local_or_url, places)
    for place in wanted:
        if isinstance(place, Path) and not place.is_dir():
            raise typer.BadParameter(
                f"there is no folder {place}; give the path of a root", param_hint="A or B"
            )
    summary = _Summary()
    with contextlib.ExitStack() as stack:
        roots = [stack.enter_context(fetched(place)) for place in wanted]
        for place, root in zip(wanted, roots, strict=True):
            _check(root, str(place), summary, limit, as_json=as_json)
        _read_ledger(roots[0], str(wanted[0]), seen, summary, as_json=as_json)
        if source is not None:
            again, report = stack.enter_context(rebuilt(agreed, source, places))
            for what in (*report.damaged, *report.failed, *filter(None, [report.first_unreadable])):
                summary.findings += 1
                _tell(report.source, "source", "", what, as_json=as_json)
            _compare(roots[0], again, summary, limit, aged_off=True, as_json=as_json)
        for root in roots[1:]:
            _compare(roots[0], root, summary, limit, aged_off=False, as_json=as_json)
    _close(summary, compared=bool(source or places), as_json=as_json)


def _check(root: Path, name: str, summary: _Summary, limit: int, *, as_json: bool) -> None:
    from waybill.exporter import check

    with console.progress() as bar:
        task = bar.add_task(f"verifying {name}", total=None)
        for checked in check(root):
            summary.files += 1
            summary.rows += checked.rows
            bar.update(task, completed=summary.files)
            for finding in checked.findings:
                summary.findings += 1
                if summary.findings > limit:
                    continue
                # A copy of what is elsewhere goes by the name of that.
                what = finding.what.replace(str(root), name)
                _tell(name, finding.kind, finding.path, what, as_json=as_json)


def _read_ledger(root: Path, name: str, seen: str | None, summary: _Summary, *, as_json: bool) -> None:
    from waybill.exporter.ledger import read_ledger

    state = read_ledger(root)
    summary.head = state.head if state else None
    if seen is None or (state and seen in state.heads):
        return
    summary.findings += 1
    what = (
        f"no entry of the ledger of {name} has the hash {seen}; what came before it was rewritten or removed"
    )
    _tell(name, "ledger", "", what, as_json=as_json)


def _tell(root: str, kind: str, path: str, what: str, *, as_json: bool) -> None:
    if as_json:
        console.json({"kind": "finding", "root": root, "finding": kind, "path": path, "what": what})
    else:
        console.line((kind, "red"), f" {root}/{path}: {what}" if path else f" {what}")


def _compare(
    ours: Path, theirs: Path, summary: _Summary, limit: int, *, aged_off: bool, as_json: bool
) -> None:
    from waybill.exporter import compare

    for difference in compare(ours, theirs):
        lacking = difference.theirs if difference.ours is None else None
        if aged_off and lacking is not None and has_aged_off(ours, lacking):
            continue
        summary.differences += 1
        if summary.differences > limit:
            continue
        if as_json:
            console.json({"kind": "difference", **msgspec.to_builtins(difference)})
            continue
        for sign, style, record in (("-", "red", difference.ours), ("+", "green", difference.theirs)):
            if record is not None:
                console.line((f"{sign} ", style), _words(record))


def _close(summary: _Summary, *, compared: bool, as_json: bool) -> None:
    if as_json:
        console.json(summary)
    else:
        said = [f"{summary.files} files with {summary.rows} rows", f"{summary.findings} findings"]
        if compared:
            said.append(f"{summary.differences} records differ")
        said.append(f"the ledger's head is {summary.head}" if summary.head else "there is no ledger")
        console.note(", ".join(said))
    if summary.findings or summary.differences:
        raise typer.Exit(console.EXIT_FAILED)


def _words(record: ProvenanceRecord) -> str:
    parts: Iterable[str] = (
        records.instant_of(record.completed),
        record.final_state.value,
        record.system_name,
        record.did,
        record.filename,
        records.passage_of(record),
        *(f"{key}={value}" for key, value in sorted((record.annotations or {}).items())),
    )
    return "  ".join(filter(None, parts))
