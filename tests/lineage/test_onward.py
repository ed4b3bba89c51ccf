"""A journey goes on where its files ended: in the datasets that they reached, and what came from these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keeping import dataset, index, keep, ran

from waybill.exporter import Query
from waybill.lineage import Lineage
from waybill.lineage.graph import shown
from waybill.transport import Settings, Tracker

if TYPE_CHECKING:
    from events import Named

    from waybill.lineage.graph import Onward

PLACES = {"lake": "s3://lake/raw", "trash": "s3://lake/trash"}
RUN: str = "01a1fd6a-9e75-7d78-870f-00000000000{}"


def by_run(number: int, job: str, reads: str, *writes: Named, kind: str = "COMPLETE") -> dict[str, Any]:
    return ran(job, [reads], writes, 0, kind, run=RUN.format(number))


def steps(onward: Onward) -> list[tuple[str, str]]:
    return [(shown(edge.source), shown(edge.target)) for edge in onward.beyond.edges]


def test_a_file_goes_on_with_the_dataset_that_it_reached_and_no_other(settings: Settings) -> None:
    dids: dict[str, str] = {}
    with Tracker(settings=settings) as tracker:
        for sink in PLACES:
            with tracker.file(f"{sink}.csv", data_source="sftp-in", data_sinks=PLACES) as file:
                file.egress(sink)
                dids[sink] = file.did
    raw, sums, trash = (dataset(name, "s3://lake") for name in ("raw", "sums", "trash"))
    keep(settings.home, [ran("etl/sum", [raw], [sums]), ran("etl/burn", [trash], ["ash/heap"])])
    for _ in range(2):  # as the tail, and in the index
        journey = Lineage.open(settings.home).trace(dids["lake"])
        assert list(map(shown, journey.onward.datasets)) == ["s3://lake/raw"]
        assert steps(journey.onward) == [("s3://lake/raw", "etl/sum"), ("etl/sum", "s3://lake/sums")]
        index(settings)
    assert steps(Lineage.open(settings.home).trace(dids["lake"], down=False).onward) == []


def test_a_run_goes_on_with_what_it_wrote_itself_unless_it_failed(settings: Settings) -> None:
    """What its job wrote in other runs is not what it reached."""
    day = dataset("orders/date=2026-01-31", "s3a://lake")
    reached: dict[int, list[str]] = {
        1: ["lake/a"],
        2: ["lake/b", "lake/c"],
        3: ["s3://lake/orders"],
        4: [],
        5: [],
    }
    told = [
        by_run(1, "etl/load", "sftp/in", "lake/a"),
        by_run(2, "etl/load", "sftp/in", "lake/b", "lake/c"),
        by_run(3, "etl/load", "sftp/in", day),
        by_run(4, "etl/load", "sftp/in", "lake/a", kind="FAIL"),
        by_run(5, "etl/load", "sftp/in", "lake/a", kind="ABORT"),
        by_run(6, "etl/sum", "lake/a", "lake/report"),
    ]
    home = keep(settings.home, told)
    for _ in range(2):
        for run, places in reached.items():
            onward = home.trace(RUN.format(run)).onward
            assert list(map(shown, onward.datasets)) == places
            assert bool(steps(onward)) == (run == 1)
        index(settings)
    assert [one.data_sink for one in home.find(Query(did=RUN.format(3)))] == [
        "s3a://lake/orders/date=2026-01-31"
    ]


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
