"""OpenLineage events, as clients send them that know nothing of Waybill."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from waybill.transport import Journal

RUN_EVENT = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
"""What a `schemaURL` names."""


Named = str | Mapping[str, object]
"""A job or a dataset: its namespace, and after the first slash its name; or its members."""


def named(one: Named) -> dict[str, object]:
    """The members of a job or a dataset."""
    if not isinstance(one, str):
        return dict(one)
    namespace, _, name = one.partition("/")
    return {"namespace": namespace, "name": name}


def members(
    run: str,
    kind: str = "COMPLETE",
    at: str = "2026-01-31T12:00:00Z",
    *,
    job: Named = "tests/job",
    facets: Mapping[str, object] | None = None,
    inputs: Sequence[Named] = (),
    outputs: Sequence[Named] = (),
    **others: Any,  # noqa: ANN401 - any JSON value
) -> dict[str, Any]:
    """The members of a run event; `facets` are those of the run, and `others` come beside or instead."""
    datasets = {"inputs": list(map(named, inputs)), "outputs": list(map(named, outputs))}
    return {
        "eventTime": at,
        "eventType": kind,
        "producer": "https://example.org/tests",
        "run": {"runId": run, "facets": facets or {}},
        "job": named(job),
        **{name: some for name, some in datasets.items() if some},
        **others,
    }


def event(run: str, kind: str = "COMPLETE", at: str = "2026-01-31T12:00:00Z", **others: Any) -> bytes:  # noqa: ANN401 - as above
    """The bytes of a run event; see `members`."""
    return json.dumps(members(run, kind, at, **others)).encode()


def events_in(home: Path) -> list[dict[str, Any]]:
    """The events that a home has kept, in their order."""
    journal = Journal(home, to_read=True)
    try:
        return [json.loads(entry.body) for entry in journal.read(0, limit=1_000) if entry.event]
    finally:
        journal.close()
