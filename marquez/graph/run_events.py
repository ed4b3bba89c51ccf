"""The events of Waybill's own runs, each of which counts many files.

Marquez shows a start only for a run with a START, and an end only if it is later than the start. So each run
has two events; the first is derived from the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from waybill.facets import PRODUCER, SUMMARY_FACET, FinalState
from waybill.facets.event import facet_schema_url
from waybill.facets.json_events import RUN_EVENT_SCHEMA, instant, standard_facet


def run_event(
    run_id: str,
    job: Mapping[str, object],
    summary: Mapping[str, object],
    *,
    cause: str,
    inputs: list[dict[str, object]],
    outputs: list[dict[str, object]],
    facets: Mapping[str, object],
) -> bytes:
    """The end of a run that counts files: FAIL if one of them failed, and `cause` says why.

    `summary` has the members of a `waybill.facets.WaybillSummaryRunFacet`; those that are None are left out.
    """
    failed = "error" in summary
    first, last = summary["windowStart"], summary["windowEnd"]
    nominal = standard_facet("1-0-1", "NominalTimeRunFacet", nominalStartTime=first, nominalEndTime=last)
    said = {key: value for key, value in summary.items() if value is not None}
    said |= {"_producer": PRODUCER, "_schemaURL": facet_schema_url("WaybillSummaryRunFacet")}
    of_run: dict[str, object] = {"nominalTime": nominal, SUMMARY_FACET: said, **facets}
    if failed and cause:
        error = {"message": cause, "programmingLanguage": "UNKNOWN"}
        of_run["errorMessage"] = standard_facet("1-0-1", "ErrorMessageRunFacet", **error)
    return msgspec.json.encode(
        {
            "eventType": "FAIL" if failed else "COMPLETE",
            "eventTime": last,
            "producer": PRODUCER,
            "schemaURL": RUN_EVENT_SCHEMA,
            "run": {"runId": run_id, "facets": of_run},
            "job": dict(job),
            "inputs": inputs,
            "outputs": outputs,
        }
    )


def start_of(body: bytes) -> bytes | None:
    """The START of one of Waybill's own runs, from its end; None for any other event."""
    if _MARK not in body:
        return None
    event: dict[str, Any] = msgspec.json.decode(body)
    facets = event["run"]["facets"]
    if event["producer"] != PRODUCER or SUMMARY_FACET not in facets or "nominalTime" not in facets:
        return None
    return _as_start(event, facets["nominalTime"]["nominalStartTime"])


def as_start(body: bytes, started_ms: int) -> bytes:
    """The START of a run whose own is not known any more, from its end and its time in epoch milliseconds."""
    return _as_start(msgspec.json.decode(body), instant(started_ms))


def _as_start(event: dict[str, Any], started: str) -> bytes:
    facets = event["run"].get("facets") or {}
    facets.pop("errorMessage", None)
    return msgspec.json.encode({**event, "eventType": "START", "eventTime": started})


_MARK: Final = SUMMARY_FACET.encode()


def counts(states: Mapping[FinalState, int]) -> dict[str, Any]:
    """The fields of a summary's facet with counts by final state; also flat, for Marquez's page to unfold."""
    return {
        "byFinalState": {str(state): states[state] for state in sorted(states)},
        **{state.lower(): count for state, count in states.items()},
    }


def window_of(first_ms: int, last_ms: int) -> dict[str, Any]:
    """The fields of a summary's facet with its window; at least 1 ms long, or the run would have no end."""
    return {"windowStart": instant(first_ms), "windowEnd": instant(max(last_ms, first_ms + 1))}
