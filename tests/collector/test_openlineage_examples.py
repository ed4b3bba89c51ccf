"""OpenLineage's own examples: each facet of its specification, and the events of its tests for consumers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from served import DID, event

from waybill.exporter.archive import archived_files, read_entries
from waybill.transport import Settings, flush

if TYPE_CHECKING:
    from inside import Inside

EXAMPLES = Path(__file__).with_name("openlineage")
DATASET = {"namespace": "postgres://warehouse:5432", "name": "public.orders"}


def with_facets(path: Path, facets: dict[str, Any]) -> bytes:
    """An event with these facets where the folder of their example says that they belong."""
    kind = path.parent.name
    if kind == "LineageFacet":
        kind = "DatasetFacet" if path.stem.startswith("dataset-to") else "JobFacet"
    if kind.endswith("RunFacet"):
        return event(run={"runId": DID, "facets": facets})
    if kind.endswith("JobFacet"):
        return event(job={"namespace": "tests", "name": "job", "facets": facets})
    if kind.endswith("InputDatasetFacet") or path.stem.startswith("input"):
        return event(inputs=[DATASET | {"inputFacets": facets}])
    if kind.endswith("OutputDatasetFacet") or path.stem.startswith("output"):
        return event(outputs=[DATASET | {"outputFacets": facets}])
    assert kind.endswith("DatasetFacet"), kind
    return event(outputs=[DATASET | {"facets": facets}])


def examples() -> dict[str, bytes]:
    """Every example as it is sent, by its path."""
    found = {}
    for path in sorted(EXAMPLES.rglob("*.json")):
        body = path.read_bytes()
        if "eventTime" not in json.loads(body):
            body = with_facets(path, json.loads(body))
        found[str(path.relative_to(EXAMPLES))] = body
    return found


def test_every_example_is_taken_and_comes_back_from_the_archive_to_the_byte(shared: Inside) -> None:
    sent = examples()
    answers = {name: shared.post("/api/v1/lineage", body) for name, body in sent.items()}
    assert {name: reply.body for name, reply in answers.items() if reply.status != 201} == {}
    assert (len([name for name in sent if name.startswith("facets/")]), len(sent)) == (47, 121)
    given = {"home": shared.home, "root": shared.home.with_name("root"), "provenance_enabled": True}
    settings = Settings.load(given, env={}, cwd=shared.home.parent)
    report = flush(settings)
    assert (report.problems, report.left, report.poison) == ({}, {}, {})
    files = archived_files(settings.root)
    kept = {entry.body for _, path in files for batch in read_entries(path) for entry in batch}
    assert {name for name, body in sent.items() if body not in kept} == set()
