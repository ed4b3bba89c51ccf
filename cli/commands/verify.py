"""`waybill verify`: check that files are intact, and that two roots hold the same records."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from waybill.facets import ProvenanceRecord
from waybill.transport import Journal, NotFoundError, Settings
from waybill.transport.counting import counted

from .. import completing, console, records
from ..arguments import argument, flag, valued
from ..home import agreed_settings, check_root_folder, checked_root
from ..options import with_settings
from .rebuild import rebuild_embedded

if TYPE_CHECKING:
    from waybill.exporter.query import Difference
    from waybill.exporter.rebuilding import RebuildReport
    from waybill.exporter.verification import Collision, Finding


class _Summary(msgspec.Struct, tag="summary", tag_field="kind"):
    """The result of a verification, as the last line of its JSON.

    Attributes:
        collisions: records that two different stories were merged into; they are no findings.
        not_compared: keys of annotations that records have or lack only because different rules wrote them.
    """

    files: int = 0
    rows: int = 0
    findings: int = 0
    accepted: int = 0
    differences: int = 0
    collisions: int = 0
    not_compared: list[str] = []
    head: str | None = None


@with_settings("home", "root", "system_name", "provenance_annotations_allowed", "provenance_reasons")
def verify(
    settings: Settings,
    *,
    ours: Annotated[
        str | None,
        argument(
            "A", "The root to verify, or s3://bucket/folder, gs://…, az://….", show_default="the root set"
        ),
    ] = None,
    theirs: Annotated[
        list[str] | None,
        argument(
            "B",
            "A root, or the URL of an exported one, that must hold the same records; with --from, the "
            "source's location: a root, paths of files, or a URL.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        valued(
            "SOURCE",
            "Stored events that must give the same records: 'journal', 'events', 'jsonl', 'marquez' or "
            "'marquez-db', as `waybill rebuild` reads them.",
            "--from",
            autocompletion=completing.sources,
        ),
    ] = None,
    seen: Annotated[
        str | None, valued("HASH", "An earlier head of A's ledger, which must still be in it.")
    ] = None,
    accept: Annotated[
        list[str] | None,
        valued(
            "ID", "Accept the finding of A with this ID, shown in brackets. Repeatable. The ledger keeps it."
        ),
    ] = None,
    why: Annotated[
        str, valued("TEXT", "With --accept: the reason, recorded in the ledger too.", show_default=False)
    ] = "",
    limit: Annotated[
        int, valued("COUNT", "Print at most this many findings and differences; all are counted.", min=0)
    ] = 100,
    as_json: Annotated[
        bool, flag("--json", "Print one JSON object per line; the last is a summary.")
    ] = False,
) -> None:
    """Prove that a root's files are intact, and that two roots hold the same records.

    Reads every file and checks its seal, its schema, the system, hour and order of its rows, repeated rows,
    and raw files left beside compacted ones. The ledger shows which files were altered, removed or slipped
    in. Note its head somewhere else and give it later with --seen, to prove that nobody has rewritten the
    entries before it. With B, verifies both roots and compares them record by record, whichever files hold
    the records. A root in an object store is downloaded to a temporary folder and verified there, with its
    manifests. With --from, rebuilds the source's events in a temporary folder and compares the records; what
    has aged off does not count as a difference. Flush first, so that the journal holds nothing that the files
    lack.

    Two different files that were sent under one did, as one record, are shown as a collision, as far as the
    stored events have them: the record has the merged values, the archive has both stories.
    This is no finding.

    Each finding has an ID and stays open until somebody accepts it with --accept, even if later changes hide
    it. It is then shown as accepted. Accepting an unknown file adds it to the ledger; later changes to it are
    new findings. Exit code 1 if any finding is not accepted, or if records differ.

    Examples:
      waybill verify
      waybill verify /data/lineage /mnt/copy --json | jq -c 'select(.kind != "summary")'
      waybill verify /data/lineage s3://bucket/lineage
      waybill verify --accept 1f0c9be24d77 --why "the disk was replaced, rows filed again"
      waybill verify --from journal
      waybill verify /data/lineage http://localhost:5000 --from marquez
    """
    from waybill.exporter.ledger import read_ledger

    agreed = agreed_settings(settings, needed=False if ours and source != "journal" else None)
    places = theirs or []
    wanted = _roots_of(agreed, ours, () if source else places)
    if accept and (source or len(wanted) > 1 or not isinstance(wanted[0], Path)):
        raise typer.BadParameter(
            "findings are accepted in one root, a folder; give only that", param_hint="--accept"
        )
    if why and not accept:
        raise typer.BadParameter(
            "this is the reason for an --accept; give the ID of a finding", param_hint="--why"
        )
    output = _Output(limit, frozenset(accept or ()), as_json=as_json)
    with contextlib.ExitStack() as stack:
        roots = [stack.enter_context(_fetched(place)) for place in wanted]
        for place, root in zip(wanted, roots, strict=True):
            _check(root, str(place), output)
        if ours is None:
            _tell_collisions(agreed, roots[0], output)
        if accept:
            output.accept(roots[0], why)
        ledger = read_ledger(roots[0])
        output.summary.head = ledger.head if ledger else None
        if seen is not None and not (ledger and seen in ledger.heads):
            name = str(wanted[0])
            what = f"no entry of the ledger of {name} has the hash {seen}"
            output.trouble(name, "ledger", f"{what}; earlier entries were rewritten or removed")
        if source is not None:
            again, report = stack.enter_context(_rebuilt(agreed, roots[0], source, places))
            lacking = (one.sentence for one in report.coalesced)
            first = filter(None, [report.first_unreadable])
            for what in (*report.damaged, *report.failed, *lacking, *first):
                output.trouble(report.source, "source", what)
            _compare(roots[0], again, output, aged_off=True)
        for root in roots[1:]:
            _compare(roots[0], root, output)
    output.close(compared=bool(source or places))


def _roots_of(agreed: Settings, ours: str | None, theirs: Sequence[str]) -> list[Path | str]:
    from waybill.exporter.object_stores import local_or_url

    if len(theirs) > 1:
        raise typer.BadParameter("only two roots can be compared; give one B", param_hint="B")
    wanted = [local_or_url(ours) if ours else checked_root(agreed), *map(local_or_url, theirs)]
    own = None if ours else wanted[0]
    for place in wanted:
        # The home's own root may still be empty.
        if isinstance(place, Path) and not (place == own and place.is_dir()):
            check_root_folder(place)
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
def _rebuilt(
    settings: Settings, root: Path, source: str, places: Sequence[str]
) -> Iterator[tuple[Path, RebuildReport]]:
    """A temporary root to compare with `root`, rebuilt from a source of `waybill rebuild --from`."""
    from waybill.exporter import Wanted, open_source
    from waybill.exporter.rebuilding import rule_for

    wanted = Wanted(system_name=settings.system_name, rule=rule_for(settings, root))
    opened = open_source(source, places, settings)
    with tempfile.TemporaryDirectory(prefix="waybill-verify-") as folder:
        again = Path(folder)
        yield again, rebuild_embedded(opened, again, wanted, os.cpu_count() or 1, again)


class _Output:
    """Prints findings, differences and collisions up to a limit of each, and counts them all.

    There may be millions beyond the limit, so nothing is rendered of those.
    """

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
        self.summary.accepted += is_accepted
        self.summary.findings += not is_accepted
        if self.summary.findings + self.summary.accepted > self._limit:
            return
        shown = {"id": one.id, "path": one.path, "what": what, "accepted": is_accepted, "why": one.accepted}
        state, style = ("accepted ", "dim") if is_accepted else ("", "red")
        self._print(
            {"kind": "finding", "root": root, "finding": one.kind, **shown},
            [((f"{state}{one.kind}", style), f" {root}/{one.path}: {what} [{one.id}]")],
        )

    def trouble(self, root: str, kind: str, what: str) -> None:
        """Report a problem that cannot be accepted, since it is about the request, not about a file."""
        self.summary.findings += 1
        told = {"kind": "finding", "root": root, "finding": kind, "path": "", "what": what}
        self._print(told, [((kind, "red"), f" {what}")])

    def accept(self, root: Path, why: str) -> None:
        """Accept the findings with the given IDs; each of them must have been found."""
        from waybill.exporter.verification import accept_findings

        if unknown := sorted(self._to_accept - self._accepting.keys()):
            what = f"no finding of {root} has the ID {', '.join(unknown)}, so nothing was accepted"
            raise NotFoundError(
                f"{what}; give an ID that `{shlex.join(['waybill', 'verify', str(root)])}` shows"
            )
        accept_findings(root, list(self._accepting.values()), why)

    def difference(self, found: Difference) -> None:
        self.summary.differences += 1
        if self.summary.differences > self._limit:
            return
        sides = (("-", "red", found.ours), ("+", "green", found.theirs))
        self._print(
            {"kind": "difference", **records.as_plain(found)},
            [((f"{sign} ", style), _words(record)) for sign, style, record in sides if record is not None],
        )

    def collision(self, found: Collision) -> None:
        """Show two stories that are one record; nothing is damaged, so this is no finding."""
        self.summary.collisions += 1
        if self.summary.collisions > self._limit:
            return
        lines: list[tuple[console.Part, ...]] = [
            (("collision", "yellow"), f" two stories of {console.shown(found.did)} are one record:")
        ]
        for story, where in zip(found.stories, found.places, strict=True):
            came_from = f" from {story.parent_did}" if story.parent_did else ""
            lines += [(f"  {_words(story)}{came_from}",), ((f"    {where}", "dim"),)]
        self._print({"kind": "collision", **records.as_plain(found)}, lines)

    def _print(self, plain: object, lines: Iterable[tuple[console.Part, ...]]) -> None:
        """Print one as JSON or as lines."""
        if self._as_json:
            console.json(plain)
            return
        for parts in lines:
            console.line(*parts)

    def close(self, *, compared: bool) -> None:
        summary = self.summary
        if self._as_json:
            console.json(summary)
        else:
            read = f"{counted(summary.files, 'file')} with {counted(summary.rows, 'row')}"
            parts = [read, counted(summary.findings, "finding")]
            if summary.accepted:
                parts.append(f"{summary.accepted:,} accepted")
            if summary.collisions:
                parts.append(counted(summary.collisions, "collision"))
            if compared:
                parts.append(counted(summary.differences, "record differs", "records differ"))
            parts.append(f"the ledger's head is {summary.head}" if summary.head else "there is no ledger")
            console.note(", ".join(parts))
        console.fail_if(summary.findings or summary.differences)


def _check(root: Path, name: str, output: _Output) -> None:
    from waybill.exporter import check

    with console.progress(f"verifying {name}") as show:
        for checked in check(root, is_copy=str(root) != name):
            output.summary.files += 1
            output.summary.rows += checked.rows
            show(completed=output.summary.files)
            for finding in checked.findings:
                # A temporary copy is shown under the name of its original.
                output.finding(name, finding, finding.what.replace(str(root), name))


def _tell_collisions(agreed: Settings, root: Path, output: _Output) -> None:
    """Show the collisions among the stored records."""
    from waybill.exporter.names import EVENTS
    from waybill.exporter.sources import EventsSource, JournalSource
    from waybill.exporter.verification import find_collisions

    archive = [EventsSource(root)] if (root / EVENTS).is_dir() else []
    journal = [JournalSource(agreed.home)] if Journal.exists(agreed.home) else []
    for found in find_collisions([*archive, *journal], system_name=agreed.system_name):
        output.collision(found)


def _compare(ours: Path, theirs: Path, output: _Output, *, aged_off: bool = False) -> None:
    """Compare two roots; `aged_off` ignores records that a recorded age-off or export removed."""
    from waybill.exporter import compare
    from waybill.exporter.incomplete import IncompleteError
    from waybill.exporter.names import hour_of, safe_name
    from waybill.exporter.tombstones import was_removed

    left_out: set[str] = set()
    is_removed = functools.lru_cache(maxsize=1_024)(functools.partial(was_removed, ours))
    try:
        for difference in compare(ours, theirs, left_out=left_out):
            lacking = difference.theirs if difference.ours is None else None
            if (
                aged_off
                and lacking is not None
                and is_removed(safe_name(lacking.system_name), hour_of(lacking.completed))
            ):
                continue
            output.difference(difference)
    except IncompleteError:
        # The check of both roots has named these files; their records count as missing.
        console.note("the comparison lacks the records of files that cannot be read or are in quarantine")
    if left_out:
        output.summary.not_compared = sorted(left_out | set(output.summary.not_compared))
        keys = ", ".join(sorted(left_out))
        console.note(
            f"some files were written by different annotation rules: {keys} is not compared there; "
            "`waybill rebuild` into a new root writes all files by one rule"
        )


def _words(record: ProvenanceRecord) -> str:
    return f"{records.summary(record)}  {record.did}"
