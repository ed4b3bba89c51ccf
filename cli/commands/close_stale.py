"""`waybill close-stale`: end files and runs that have been open and silent for a long time."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Literal

import typer

from waybill.transport import Kind, Settings
from waybill.transport.clock import SYSTEM_CLOCK

from .. import console, open_files
from ..arguments import Csv, JsonLines, flag, moment, valued, word
from ..home import existing_journal, list_open_runs
from ..options import with_settings
from ..records import iso

_SILENT: Final = "nothing was heard from it since {}, so `waybill close-stale` ended it"


class End(StrEnum):
    """The final state that an open run is given."""

    ERROR = "ERROR"
    CANCELLED = "CANCELLED"


_EVENT_TYPES: Final[dict[End, Literal["ABORT", "FAIL"]]] = {End.ERROR: "FAIL", End.CANCELLED: "ABORT"}


@with_settings("home")
def close_stale(
    settings: Settings,
    *,
    since_ms: Annotated[
        int,
        valued(
            "AGE",
            "End those silent for this long: 90m, 6h, 2d, or since 2026-01-31.",
            "--older-than",
            parser=moment,
        ),
    ],
    end: Annotated[End, word("--as", of=End, help="The final state to give them.")],
    why: Annotated[str | None, valued("TEXT", "The reason, for their records.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Only list them.")] = False,
    as_json: JsonLines = False,
    as_csv: Csv = False,
) -> None:
    """End files and runs that have been open and silent for a long time.

    Each gets a record that gives the reason and says that the end was inferred. If a run reports its own end
    later, that replaces the inferred one. `waybill find --open` lists what is open.

    Examples:
      waybill close-stale --older-than 1d --as ERROR --dry-run
      waybill close-stale --older-than 1d --as CANCELLED --why "the cluster was shut down"
    """
    if since_ms > SYSTEM_CLOCK.now_ms():
        raise typer.BadParameter(
            "it is in the future; give an age or a time in the past", param_hint="--older-than"
        )
    with existing_journal(settings, to_read=dry_run) as journal:
        found, jobs = list_open_runs(journal)
        runs = [(file, run) for file, run in found if file.last_ms < since_ms]
        silent = [file for file, _ in runs]
        if journal is not None and not dry_run:
            now_ms = SYSTEM_CLOCK.now_ms()
            journal.append_many(
                (
                    Kind.OPENLINEAGE,
                    run.end(now_ms, why or _SILENT.format(iso(file.last_ms)), _EVENT_TYPES[end]),
                    run.system_name,
                )
                for file, run in runs
            )
    open_files.show(silent, jobs, as_json=as_json, as_csv=as_csv)
    done = "would end" if dry_run else "ended"
    console.note(
        f"{done} {len(silent):,} as {end.value}" if silent else "nothing has been open and silent that long"
    )
