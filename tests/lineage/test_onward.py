"""A journey goes on where its files ended: in the datasets that they reached, and what came from these."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from events import members

from waybill.lineage import Lineage
from waybill.lineage.graph import shown
from waybill.transport import Journal, Kind, Settings, Tracker, flush

if TYPE_CHECKING:
    from pathlib import Path

    from waybill.lineage.graph import Onward

PLACES = {"lake": "s3://lake/raw", "trash": "s3://lake/trash"}


def run_event(run: str, job: str, reads: str, writes: str, at: str = "2026-01-31T12:00:00Z") -> bytes:
    return json.dumps(members(run, "COMPLETE", at, job=job, inputs=[reads], outputs=[writes])).encode()


def keep(home: Path, *bodies: bytes) -> None:
    with closing(Journal(home)) as journal:
        journal.append_many((Kind.OPENLINEAGE, body, "tests") for body in bodies)


def steps(onward: Onward) -> list[tuple[str, str]]:
    return [(shown(edge.source), shown(edge.target)) for edge in onward.beyond.edges]


def test_a_file_goes_on_with_the_dataset_that_it_reached_and_no_other(settings: Settings) -> None:
    dids: dict[str, str] = {}
    with Tracker(settings=settings) as tracker:
        for sink in PLACES:
            with tracker.file(f"{sink}.csv", data_source="sftp-in", data_sinks=PLACES) as file:
                file.egress(sink)
                dids[sink] = file.did
    s3: dict[str, Any] = {"namespace": "s3://lake"}
    report = json.dumps(
        members(
            "r", "COMPLETE", job="etl/sum", inputs=[s3 | {"name": "raw"}], outputs=[s3 | {"name": "sums"}]
        )
    ).encode()
    burn = run_event("s", "etl/burn", "s3://lake/trash", "ash/heap")
    keep(settings.home, report, burn.replace(b'"s3:"', b'"s3://lake"').replace(b'"//lake/trash"', b'"trash"'))
    for _ in range(2):  # as the tail, and in the index
        journey = Lineage.open(settings.home).trace(dids["lake"])
        assert list(map(shown, journey.onward.datasets)) == ["s3://lake/raw"]
        assert steps(journey.onward) == [("s3://lake/raw", "etl/sum"), ("etl/sum", "s3://lake/sums")]
        assert flush(settings).problems == {}
    assert steps(Lineage.open(settings.home).trace(dids["lake"], down=False).onward) == []


def test_a_run_goes_on_with_what_it_wrote(settings: Settings) -> None:
    first = "01a1fd6a-9e75-7d78-870f-000000000001"
    keep(
        settings.home,
        run_event(first, "etl/load", "sftp/in", "lake/raw"),
        run_event("01a1fd6a-9e75-7d78-870f-000000000002", "etl/sum", "lake/raw", "lake/report"),
    )
    assert flush(settings).problems == {}
    home = Lineage.open(settings.home)
    onward = home.trace(first).onward
    assert list(map(shown, onward.datasets)) == ["lake/raw"]
    assert steps(onward) == [("lake/raw", "etl/sum"), ("etl/sum", "lake/report")]
