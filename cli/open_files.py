"""The display of files and runs that have not ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any

import msgspec

from waybill.transport.clock import SYSTEM_CLOCK
from waybill.transport.counting import duration_text

from . import console
from .records import instant_of, iso, name_of

if TYPE_CHECKING:
    from waybill.lineage import OpenFile
    from waybill.lineage.index import JobRun


def as_plain(run: OpenFile, of: JobRun | None = None) -> dict[str, Any]:
    """An open run as plain values, with what it is if it is no file."""
    return {
        **({} if of is None else msgspec.to_builtins(of)),
        "did": run.did,
        "parent_did": run.parent_did,
        "system_name": run.system_name,
        "data_source": run.data_source,
        "filename": run.filename,
        "transform": run.transform,
        "began": iso(run.began_ms),
        "last_heard": iso(run.last_ms),
    }


def show(
    found: Sequence[OpenFile],
    runs: Mapping[str, JobRun],
    *,
    zone: tzinfo | None = UTC,
    as_json: bool = False,
    as_csv: bool = False,
) -> None:
    """Print open files and runs, one line each; none only as the heading of CSV."""
    if as_json:
        for run in found:
            console.json(as_plain(run, runs.get(run.did)))
    elif found or as_csv:
        from waybill.lineage.index import shown_as

        _show_table(shown_as(found, runs), zone, as_csv=as_csv)


def _show_table(runs: Sequence[OpenFile], zone: tzinfo | None, *, as_csv: bool) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    console.table(
        (f"began ({name_of(zone)})", "last heard", "file", "source", "last began", "system", "did"),
        (
            (
                instant_of(run.began_ms, zone)[:19],
                f"{duration_text((now_ms - run.last_ms) / 1_000)} ago",
                run.filename or "",
                run.data_source,
                run.transform or "",
                run.system_name,
                run.did,
            )
            for run in runs
        ),
        as_csv=as_csv,
    )
