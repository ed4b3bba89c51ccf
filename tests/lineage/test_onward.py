"""A journey goes on where its files ended: in the datasets that they reached, and what came from these."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from events import members
from keeping import index, keep

from waybill.exporter import Query
from waybill.lineage import Lineage
from waybill.lineage.graph import shown
from waybill.transport import Settings, Tracker

if TYPE_CHECKING:
    from waybill.lineage.graph import Onward

PLACES = {"lake": "s3://lake/raw", "trash": "s3://lake/trash"}


def run_event(
    run: str, job: str, reads: str, *writes: str, at: str = "2026-01-31T12:00:00Z", kind: str = "COMPLETE"
) -> bytes:
    return json.dumps(members(run, kind, at, job=job, inputs=[reads], outputs=writes)).encode()


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
    keep(
        settings.home, [report, burn.replace(b'"s3:"', b'"s3://lake"').replace(b'"//lake/trash"', b'"trash"')]
    )
    for _ in range(2):  # as the tail, and in the index
        journey = Lineage.open(settings.home).trace(dids["lake"])
        assert list(map(shown, journey.onward.datasets)) == ["s3://lake/raw"]
        assert steps(journey.onward) == [("s3://lake/raw", "etl/sum"), ("etl/sum", "s3://lake/sums")]
        index(settings)
    assert steps(Lineage.open(settings.home).trace(dids["lake"], down=False).onward) == []


def test_a_run_goes_on_with_what_it_wrote(settings: Settings) -> None:
    first = "01a1fd6a-9e75-7d78-870f-000000000001"
    keep(
        settings.home,
        [
            run_event(first, "etl/load", "sftp/in", "lake/raw"),
            run_event("01a1fd6a-9e75-7d78-870f-000000000002", "etl/sum", "lake/raw", "lake/report"),
        ],
    )
    index(settings)
    home = Lineage.open(settings.home)
    onward = home.trace(first).onward
    assert list(map(shown, onward.datasets)) == ["lake/raw"]
    assert steps(onward) == [("lake/raw", "etl/sum"), ("etl/sum", "lake/report")]


RUN: str = "01a1fd6a-9e75-7d78-870f-00000000000{}"


def test_a_run_that_failed_reached_nothing_though_its_job_did_before(settings: Settings) -> None:
    keep(
        settings.home,
        [
            run_event(RUN.format(1), "etl/load", "sftp/in", "lake/raw"),
            run_event(RUN.format(2), "etl/load", "sftp/in", "lake/raw", kind="FAIL"),
            run_event(RUN.format(3), "etl/load", "sftp/in", "lake/raw", kind="ABORT"),
            run_event(RUN.format(4), "etl/sum", "lake/raw", "lake/report"),
        ],
    )
    for _ in range(2):
        home = Lineage.open(settings.home)
        assert list(map(shown, home.trace(RUN.format(1)).onward.datasets)) == ["lake/raw"]
        for failed in (2, 3):
            onward = home.trace(RUN.format(failed)).onward
            assert (onward.datasets, steps(onward)) == ((), [])
        index(settings)


def test_a_file_that_was_filtered_or_failed_reached_nothing(settings: Settings) -> None:
    dids = []
    with Tracker(settings=settings) as tracker:
        for at in range(3):
            file = tracker.file(f"{at}.csv", data_source="sftp-in", data_sinks=PLACES)
            dids.append(file.did)
            if at == 0:
                file.egress("lake")
            elif at == 1:
                file.filter("too old")
            else:
                file.error("no header")
    home = Lineage.open(settings.home)
    reached = [list(map(shown, home.trace(did).onward.datasets)) for did in dids]
    assert reached == [["s3://lake/raw"], [], []]


def test_a_run_goes_on_with_what_it_wrote_itself_and_not_with_what_its_job_wrote_in_others(
    settings: Settings,
) -> None:
    day = "s3a://lake/orders/date=2026-01-31"
    partition = {"namespace": "s3a://lake", "name": "orders/date=2026-01-31"}
    body = json.dumps(members(RUN.format(3), job="etl/load", outputs=[partition])).encode()
    keep(
        settings.home,
        [
            run_event(RUN.format(1), "etl/load", "sftp/in", "lake/a"),
            run_event(RUN.format(2), "etl/load", "sftp/in", "lake/b", "lake/c"),
            body,
        ],
    )
    index(settings)
    home = Lineage.open(settings.home)
    assert [record.data_sink for record in home.find(Query(did=RUN.format(3)))] == [day]
    for run, reached in ((1, ["lake/a"]), (2, ["lake/b", "lake/c"]), (3, ["s3://lake/orders"])):
        assert list(map(shown, home.trace(RUN.format(run)).onward.datasets)) == reached
