"""`waybill verify`: check that files are right, and that two roots hold the same records."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from waybill.cli import console, records
from waybill.cli.home import agreed_settings, checked_root
from waybill.cli.options import with_settings
from waybill.facets import ProvenanceRecord
from waybill.transport import Settings, WaybillError

if TYPE_CHECKING:
    from waybill.exporter.query import Difference
    from waybill.exporter.rebuilding import RebuildReport
    from waybill.exporter.verification import Finding


class _Summary(msgspec.Struct, tag="summary", tag_field="kind"):
    """The result of a verification, as the last line of its JSON."""

    files: int = 0
    rows: int = 0
    findings: int = 0
    accepted: int = 0
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
            help="A root, or the URL of an exported one, that must hold the same records; with --from, the "
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
        typer.Option(metavar="HASH", help="An earlier head of A's ledger, which must still be in it."),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID",
            help="Settle this finding of A; may be repeated. The ledger keeps it.",
        ),
    ] = None,
    why: Annotated[
        str, typer.Option(metavar="TEXT", help="The reason, which the ledger keeps too.", show_default=False)
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            metavar="COUNT",
            min=0,
            help="The most findings and the most differences to print; all are counted.",
        ),
    ] = 100,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, the last one a summary.")
    ] = False,
) -> None:
    """Prove that a root's files are right, and that two roots hold the same records.

    Every file is read, and checked for its seal, its schema, the system, hour and order of its rows, repeated
    rows, and raw files left beside the compacted ones. The ledger shows what was altered, removed or slipped
    in; note its head elsewhere and give it later with --seen, which proves that nobody has rewritten what
    came before. With B, both roots are verified and then compared record by record, in whichever files the
    records are. A root in an object store is fetched into a temporary folder and verified there, with its
    manifests. With --from, the records are compared with those that the source's events rebuild to in a
    temporary folder; what has aged off does not count as a difference. Flush first, so that the journal holds
    nothing that the files lack.

    Each finding has an ID and stays one until somebody settles it with --accept, even if later changes cover
    it up. It is then shown as accepted. A file that the ledger did not know is its file from then on; what
    happens anew is a new finding. Exit code 1 when anything is found that is not accepted.

    Examples:

    \b
      waybill verify
      waybill verify /data/lineage /mnt/copy --json | jq -c 'select(.kind != "summary")'
      waybill verify /data/lineage s3://bucket/lineage
      waybill verify --accept 1f0c9be24d77 --why "the disk was replaced, rows filed again"
      waybill verify --from journal
      waybill verify /data/lineage http://localhost:5000 --from marquez
    """
    from waybill.exporter.ledger import read_ledger

    agreed = agreed_settings(settings)
    places = theirs or []
    wanted = _roots_of(agreed, ours, () if source else places)
    if accept and (source or len(wanted) > 1 or not isinstance(wanted[0], Path)):
        raise typer.BadParameter(
            "a finding is accepted in one root, a folder; give only that", param_hint="--accept"
        )
    output = _Output(limit, frozenset(accept or ()), as_json=as_json)
    with contextlib.ExitStack() as stack:
        roots = [stack.enter_context(_fetched(place)) for place in wanted]
        for place, root in zip(wanted, roots, strict=True):
            _check(root, str(place), output)
        if accept:
            output.accept(roots[0], why)
        ledger = read_ledger(roots[0])
        output.summary.head = ledger.head if ledger else None
        if seen is not None and not (ledger and seen in ledger.heads):
            name = str(wanted[0])
            what = f"no entry of the ledger of {name} has the hash {seen}"
            output.trouble(name, "ledger", f"{what}; what came before it was rewritten or removed")
        if source is not None:
            again, report = stack.enter_context(_rebuilt(agreed, source, places))
            for what in (*report.damaged, *report.failed, *filter(None, [report.first_unreadable])):
                output.trouble(report.source, "source", what)
            _compare(roots[0], again, output, aged_off=True)
        for root in roots[1:]:
            _compare(roots[0], root, output)
    output.close(compared=bool(source or places))


def _roots_of(agreed: Settings, ours: str | None, theirs: Sequence[str]) -> list[Path | str]:
    from waybill.exporter.object_stores import local_or_url

    if len(theirs) > 1:
        raise typer.BadParameter("two roots are compared; give one B", param_hint="B")
    wanted = [local_or_url(ours) if ours else checked_root(agreed), *map(local_or_url, theirs)]
    for place in wanted:
        if isinstance(place, Path) and not place.is_dir():
            raise typer.BadParameter(
                f"there is no folder {place}; give the path of a root", param_hint="A or B"
            )
    return wanted


@contextlib.contextmanager
def _fetched(place: Path | str) -> Iterator[Path]:
    """A root as a folder: itself, or a temporary copy of one in an object store."""
    if isinstance(place, Path):
        yield place
        return
    from waybill.exporter.exporting import fetch_root

    with tempfile.TemporaryDirectory(prefix="waybill-verify-") as folder:
        with console.progress(f"fetching {place}") as show:
            fetch_root(place, Path(folder), on_progress=lambda done, total: show(completed=done, total=total))
        yield Path(folder)


@contextlib.contextmanager
def _rebuilt(settings: Settings, source: str, places: Sequence[str]) -> Iterator[tuple[Path, RebuildReport]]:
    """A temporary root that is rebuilt from a source, as `waybill rebuild --from` names it."""
    from waybill.exporter import Wanted, open_source, rebuild as rebuild_layout

    wanted = Wanted(
        system_name=settings.system_name, annotations_allowed=settings.provenance_annotations_allowed
    )
    opened = open_source(source, places, settings)
    with tempfile.TemporaryDirectory(prefix="waybill-verify-") as folder:
        with console.progress("reading") as show:
            report = rebuild_layout(
                opened,
                Path(folder),
                wanted,
                workers=os.cpu_count() or 1,
                on_progress=lambda what, done, total: show(description=what, completed=done, total=total),
            )
        yield Path(folder), report


class _Output:
    """Prints what a verification finds, up to a limit, and counts all of it."""

    def __init__(self, limit: int, to_accept: frozenset[str], *, as_json: bool) -> None:
        self._limit = limit
        self._as_json = as_json
        self._to_accept = to_accept
        self._accepting: dict[str, Finding] = {}
        self.summary = _Summary()

    def finding(self, root: str, one: Finding, what: str) -> None:
        is_accepted = one.accepted is not None or one.id in self._to_accept
        if one.id in self._to_accept:
            self._accepting[one.id] = one
        if is_accepted:
            self.summary.accepted += 1
        else:
            self.summary.findings += 1
        if self.summary.findings + self.summary.accepted > self._limit:
            return
        if self._as_json:
            shown = {
                "id": one.id,
                "path": one.path,
                "what": what,
                "accepted": is_accepted,
                "why": one.accepted,
            }
            console.json({"kind": "finding", "root": root, "finding": one.kind, **shown})
        else:
            style = "dim" if is_accepted else "red"
            state = "accepted " if is_accepted else ""
            console.line((f"{state}{one.kind}", style), f" {root}/{one.path}: {what} [{one.id}]")

    def trouble(self, root: str, kind: str, what: str) -> None:
        """Something that nobody can accept, since it is about what was asked for."""
        self.summary.findings += 1
        if self._as_json:
            console.json({"kind": "finding", "root": root, "finding": kind, "path": "", "what": what})
        else:
            console.line((kind, "red"), f" {what}")

    def accept(self, root: Path, why: str) -> None:
        """Settle what was asked for; every id must have been found."""
        from waybill.exporter.verification import accept_findings

        if unknown := sorted(self._to_accept - self._accepting.keys()):
            what = f"no finding of {root} has the ID {', '.join(unknown)}, so nothing was accepted"
            raise WaybillError(f"{what}; `waybill verify` lists them")
        accept_findings(root, list(self._accepting.values()), why)

    def difference(self, found: Difference) -> None:
        self.summary.differences += 1
        if self.summary.differences > self._limit:
            return
        if self._as_json:
            console.json({"kind": "difference", **msgspec.to_builtins(found)})
            return
        for sign, style, record in (("-", "red", found.ours), ("+", "green", found.theirs)):
            if record is not None:
                console.line((f"{sign} ", style), _words(record))

    def close(self, *, compared: bool) -> None:
        summary = self.summary
        if self._as_json:
            console.json(summary)
        else:
            parts = [f"{summary.files} files with {summary.rows} rows", f"{summary.findings} findings"]
            if summary.accepted:
                parts.append(f"{summary.accepted} accepted")
            if compared:
                parts.append(f"{summary.differences} records differ")
            parts.append(f"the ledger's head is {summary.head}" if summary.head else "there is no ledger")
            console.note(", ".join(parts))
        if summary.findings or summary.differences:
            raise typer.Exit(console.EXIT_FAILED)


def _check(root: Path, name: str, output: _Output) -> None:
    from waybill.exporter import check

    with console.progress(f"verifying {name}") as show:
        for checked in check(root):
            output.summary.files += 1
            output.summary.rows += checked.rows
            show(completed=output.summary.files)
            for finding in checked.findings:
                # A temporary copy is shown under the name of what it is a copy of.
                output.finding(name, finding, finding.what.replace(str(root), name))


def _compare(ours: Path, theirs: Path, output: _Output, *, aged_off: bool = False) -> None:
    """Compare two roots; with `aged_off`, without what left the first by a recorded age-off or export."""
    from waybill.exporter import compare
    from waybill.exporter.incomplete import IncompleteError
    from waybill.exporter.names import hour_of, safe_name
    from waybill.exporter.tombstones import was_removed

    is_removed = functools.lru_cache(maxsize=1_024)(functools.partial(was_removed, ours))
    try:
        for difference in compare(ours, theirs):
            lacking = difference.theirs if difference.ours is None else None
            if (
                aged_off
                and lacking is not None
                and is_removed(safe_name(lacking.system_name), hour_of(lacking.completed))
            ):
                continue
            output.difference(difference)
    except IncompleteError:
        # The check of both roots has named the files; what they held counts as missing.
        console.note("the comparison lacks the records of the files that cannot be read or are in quarantine")


def _words(record: ProvenanceRecord) -> str:
    parts = (
        records.instant_of(record.completed),
        record.final_state.value,
        record.system_name,
        record.did,
        record.filename,
        records.passage_of(record),
        *(f"{key}={value}" for key, value in sorted((record.annotations or {}).items())),
    )
    return "  ".join(filter(None, parts))
