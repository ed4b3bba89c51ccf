"""`waybill reconcile`: check that the backend has what was delivered to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from waybill.transport import NotFoundError, Settings
from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.config import MARQUEZ

from .. import completing, console
from ..arguments import FORMS, flag, moment, valued
from ..home import as_agreed, backends_of, existing_journal, flush_with_progress
from ..options import RUNNING, with_settings
from ..sample import way

if TYPE_CHECKING:
    from waybill.marquez import MissingEvent, MissingJob

_DAY_MS: Final = 86_400_000


@with_settings(*RUNNING)
def reconcile(
    settings: Settings,
    *,
    since_ms: Annotated[
        int | None,
        valued(
            "WHEN",
            f"Only events accepted at this time or later: {FORMS}.",
            "--since",
            parser=moment,
            show_default="a day ago",
        ),
    ] = None,
    repair_missing: Annotated[bool, flag("--repair", "Send missing events again, and wait.")] = False,
    backend: Annotated[
        str,
        valued(
            "NAME",
            "The Marquez to query, by its name in `waybill status`.",
            autocompletion=completing.backends,
        ),
    ] = MARQUEZ,
    as_json: Annotated[
        bool, flag("--json", "Print one JSON object per line, one for each missing item.")
    ] = False,
) -> None:
    """List delivered events and jobs that are missing from Marquez.

    Compares run events, the states of their runs, and the jobs of the graph with their edges. Dead letters
    and events not delivered yet do not count as missing. Choose --since within Marquez's retention;
    otherwise, events that Marquez was right to delete are listed too. Exit code 1 if anything is missing;
    with --repair, if anything could not be sent.

    Examples:
      waybill reconcile
      waybill reconcile --since 6h --repair
    """
    from waybill.marquez import open_reader, reconcile as compare, repair

    since_ms = SYSTEM_CLOCK.now_ms() - _DAY_MS if since_ms is None else since_ms
    with existing_journal(settings, to_read=not repair_missing) as journal:
        backends_of(settings, journal, backend)
        agreed = as_agreed(settings, journal)
        if backend == MARQUEZ and agreed.marquez_url is None:
            raise NotFoundError(f"no Marquez is set to compare with; {way(agreed, 'marquez_url', 'URL')}")
        reader = open_reader(agreed, backend)
        if journal is None:
            console.note(f"there is no journal at {settings.home} yet, so nothing was delivered")
            return
        found = compare(journal, reader, since_ms=since_ms, backend=backend)
        missing: list[MissingEvent | MissingJob] = [*found.missing, *found.missing_jobs]
        for one in missing:
            if as_json:
                console.json(one)
            else:
                console.line("\t".join(map(str, msgspec.structs.astuple(one))))
        console.note(f"{len(found.missing)} of {found.compared} delivered run events are missing")
        if found.unreadable:
            console.note(
                f"{found.unreadable} could not be compared: Marquez itself cannot read what it has there"
            )
        console.note(f"{len(found.missing_jobs)} of {found.compared_jobs} jobs of the graph are missing")
        if not missing:
            return
        console.fail_if(not repair_missing)
        repair(journal, missing, backend)
        report = flush_with_progress(settings)
        left = compare(journal, reader, since_ms=since_ms, backend=backend)
    if backend in report.problems:
        console.error(report.problems[backend])
    console.fail_if(left.missing or left.missing_jobs or backend in report.problems)
    console.note(f"{len(missing)} were sent again")
