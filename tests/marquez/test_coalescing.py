"""Files in summaries: every one is counted once, nothing else is kept back, no run is left open."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from contract_server import ContractServer
from delivering import Worker, event as event_of
from hypothesis import HealthCheck, given, settings, strategies as st
from manual_clock import ManualClock

from waybill.facets import DELTA_FILE_FACET, SUMMARY_FACET
from waybill.marquez import Counters, counters_of
from waybill.marquez.acks import PAGE_ENTRIES
from waybill.marquez.summaries import coalescing
from waybill.transport import Journal, Kind
from waybill.transport.config import DETAIL_BACKLOG

if TYPE_CHECKING:
    from delivering import Site

    from waybill.transport.config import Detail

STATES = {"COMPLETE": "COMPLETE", "ERROR": "FAIL", "CANCELLED": "ABORT", "FILTERED": "COMPLETE"}


def file_of(
    did: str, state: str | None = "COMPLETE", source: str = "orders", sink: str = "lake", size: int = 0
) -> bytes:
    """The event of a file: its end in a state, or its START where that is None."""
    facet: dict[str, Any] = {"did": did, "dataSource": source, "systemName": "east"}
    if state is not None:
        facet |= {"finalState": state, "dataSink": sink, "completed": "2026-01-01T00:00:01Z"}
    outputs = [{"namespace": "east", "name": sink, "outputFacets": {"outputStatistics": {"size": size}}}]
    return event_of(
        did,
        eventType="START" if state is None else STATES[state],
        run={"runId": did, "facets": {DELTA_FILE_FACET: facet}},
        job={"namespace": "east", "name": source},
        inputs=[{"namespace": "east", "name": source}],
        outputs=outputs if state else [],
    )


def keep_all(journal: Journal, bodies: list[bytes]) -> None:
    journal.append_many([(Kind.OPENLINEAGE, body, "") for body in bodies])


def run_events_of(marquez: ContractServer) -> list[dict[str, Any]]:
    return [event for event in marquez.stored if "run" in event]


def ends_of_summaries(marquez: ContractServer) -> list[dict[str, Any]]:
    """The ends of the runs that stand for files; those of transforms are not among them."""
    found = [event for event in run_events_of(marquez) if SUMMARY_FACET in event["run"]["facets"]]
    of_files = [event for event in found if "transform" not in event["run"]["facets"][SUMMARY_FACET]]
    return [event for event in of_files if event["eventType"] != "START"]


def summaries_of(marquez: ContractServer) -> list[dict[str, Any]]:
    return [event["run"]["facets"][SUMMARY_FACET] for event in ends_of_summaries(marquez)]


def others_of(marquez: ContractServer) -> list[dict[str, Any]]:
    return [event for event in run_events_of(marquez) if SUMMARY_FACET not in event["run"]["facets"]]


def test_a_summary_counts_states_and_bytes_and_points_to_the_records(site: Site) -> None:
    for number, state in enumerate(["COMPLETE", "COMPLETE", "ERROR", "FILTERED", "CANCELLED"]):
        keep_all(site.journal, [file_of(f"f{number}", None), file_of(f"f{number}", state, size=10)])
        site.clock.move(1)
    site.journal.mark(b"flush")
    site.deliver(detail="summary")
    start, event = site.marquez.stored
    facet = event["run"]["facets"][SUMMARY_FACET]
    assert facet["byFinalState"] == {"CANCELLED": 1, "COMPLETE": 2, "ERROR": 1, "FILTERED": 1}
    assert (facet["records"], facet["events"], facet["bytes"], facet["dataSinks"]) == (5, 10, 50, ["lake"])
    assert facet["provenanceQuery"] == "http://collector:8090/s/1"
    assert (start["eventType"], event["eventType"]) == ("START", "FAIL"), "a file among them failed"
    assert facet["windowStart"] == start["eventTime"] < event["eventTime"] == facet["windowEnd"]
    assert (facet["complete"], facet["error"], facet["filtered"], facet["cancelled"]) == (2, 1, 1, 1)
    assert event["job"] == {"namespace": "east", "name": "orders"}
    assert event["inputs"] == [{"namespace": "east", "name": "orders"}]
    assert event["outputs"] == [{"namespace": "east", "name": "lake"}]
    assert site.marquez.runs[event["run"]["runId"]] == "FAILED"
    assert counters_of(site.journal) == Counters(delivered=1, coalesced=10, summaries=1)
    assert site.journal.cursor("marquez") == site.journal.last_seq()


def test_flows_and_minutes_have_summaries_of_their_own_that_are_sent_when_the_minute_is_over(
    site: Site,
) -> None:
    worker = site.worker(detail="summary")
    for minute in range(2):
        keep_all(site.journal, [file_of(f"{minute}-{n}", source=f"source-{n % 2}") for n in range(20)])
        for _ in range(20):
            step = worker.delivery.step()
            if (step.retry_s or 0) > 1:
                break
            site.journal.sync()
        assert (step.applied, step.problem, len(site.marquez.stored)) == (0, None, minute * 4)
        assert step.retry_s == pytest.approx(60, abs=1)
        site.clock.move(step.retry_s or 0)
        worker.run()
    assert [(facet["dataSource"], facet["records"]) for facet in summaries_of(site.marquez)] == [
        ("source-0", 10),
        ("source-1", 10),
    ] * 2
    assert worker.delivery.pending() == 0


@pytest.mark.parametrize(
    ("waiting", "backlog", "summaries"), [(30, 0, 1), (30, 29, 1), (30, 30, 0), (1, 0, 1)]
)
def test_how_large_a_backlog_has_to_be_is_a_setting(
    site: Site, waiting: int, backlog: int, summaries: int
) -> None:
    keep_all(site.journal, [file_of(f"f{number}") for number in range(waiting)])
    site.clock.move(61)
    site.worker(detail="auto", backlog=backlog).run()
    assert len(summaries_of(site.marquez)) == summaries
    assert len(others_of(site.marquez)) == (0 if summaries else waiting)


def test_an_old_and_large_backlog_of_files_becomes_summaries_and_then_every_file_is_sent_again(
    site: Site,
) -> None:
    site.keep("run", 0)
    keep_all(site.journal, [file_of(f"f{number}") for number in range(DETAIL_BACKLOG + 10)])
    site.keep("run", 1)
    site.clock.move(61)
    worker = site.deliver(detail="auto")
    keep_all(site.journal, [file_of("later")])
    worker.run()
    assert [facet["records"] for facet in summaries_of(site.marquez)] == [DETAIL_BACKLOG + 10]
    assert [event["number"] for event in others_of(site.marquez)] == [0, 1, 0]
    assert site.marquez.stored[-1]["run"]["runId"] == "later"
    assert worker.delivery.pending() == 0


def test_a_file_whose_end_was_only_inferred_ends_as_it_really_did_there_too(site: Site) -> None:
    end = json.loads(file_of("begun", "CANCELLED"))
    end["run"]["facets"]["waybill_inferred"] = {"reason": "the program that ran it is gone"}
    keep_all(site.journal, [file_of("begun", None), json.dumps(end).encode()])
    worker = site.deliver(detail="auto")
    assert site.marquez.runs["begun"] == "ABORTED"
    keep_all(site.journal, [file_of(f"f{number}") for number in range(DETAIL_BACKLOG)])
    keep_all(site.journal, [file_of("begun")])
    site.clock.move(100)
    worker.run()
    assert site.marquez.runs["begun"] == "COMPLETED"
    assert [facet["records"] for facet in summaries_of(site.marquez)] == [DETAIL_BACKLOG]


def test_a_start_that_comes_after_its_end_went_into_a_summary_leaves_no_run_open(site: Site) -> None:
    keep_all(site.journal, [file_of(f"f{number}") for number in range(30)])
    site.clock.move(61)
    site.worker(detail="auto", backlog=0).run()
    assert [facet["records"] for facet in summaries_of(site.marquez)] == [30]
    now = datetime.fromtimestamp(site.clock.now_ms() / 1_000, UTC).isoformat().encode()
    keep_all(
        site.journal, [file_of("f7", None), file_of("new", None).replace(b"2026-01-01T00:00:00+00:00", now)]
    )
    worker = site.worker(detail="auto", backlog=0)
    worker.run(at_most_s=1)
    assert [event["run"]["runId"] for event in others_of(site.marquez)] == ["new"]
    site.clock.move(61)
    worker.run()
    assert [(facet["events"], facet["records"]) for facet in summaries_of(site.marquez)] == [(30, 30), (1, 0)]
    assert "f7" not in site.marquez.runs
    keep_all(site.journal, [file_of("f7", sink="report"), file_of("new")])
    worker.run()
    assert site.marquez.runs["f7"] == site.marquez.runs["new"] == "COMPLETED"
    assert worker.delivery.pending() == 0


def test_names_that_differ_for_each_file_hold_no_more_summaries_than_the_bound(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing, "OPEN_MAX", bound := 100)
    keep_all(site.journal, [file_of(f"f{number}", source=f"source-{number}") for number in range(bound + 50)])
    worker = site.worker(detail="summary")
    worker.run(until=lambda: len(site.marquez.stored) == 3)
    assert len(site.journal.state("marquez", "summary:")) <= bound + 50


def test_what_is_known_of_coalesced_events_goes_with_the_journal(site: Site) -> None:
    keep_all(site.journal, [file_of(f"f{number}") for number in range(PAGE_ENTRIES + 10)])
    site.journal.mark(b"flush")
    keep_all(site.journal, [file_of("later")])
    site.journal.mark(b"flush")
    site.worker(detail="summary").run()
    known = {*site.journal.state("marquez", "coalesced:"), *site.journal.state("marquez", "summed:")}
    assert known == {"coalesced:0:0", "coalesced:1:1", "summed:1:1", "summed:12:4108"}
    site.journal.prune(PAGE_ENTRIES - 1, 2**62)
    known = {*site.journal.state("marquez", "coalesced:"), *site.journal.state("marquez", "summed:")}
    assert known == {"coalesced:1:1", "summed:12:4108"}


@pytest.mark.parametrize("detail", ["summary", "auto"])
@given(data=st.data())
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_counts_add_up_and_others_keep_their_order_however_often_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory, detail: Detail, data: st.DataObject
) -> None:
    clock = ManualClock()
    marquez = ContractServer().start()
    journal = Journal(tmp_path_factory.mktemp("home"), clock=clock)
    expected: Counter[str] = Counter()
    last: dict[str, int] = {}
    ended: set[str] = set()
    for number in range(data.draw(st.integers(1, 4), label="rounds")):
        marquez.fault_of = data.draw(
            st.sampled_from([None, lambda _: "503-stored", lambda _: "500"]), label="fault"
        )
        bodies = []
        for place in range(data.draw(st.integers(0, 12), label="events")):
            what = data.draw(st.sampled_from(["start", "end", "other"]))
            if what == "other":
                run = data.draw(st.sampled_from(["x", "y"]))
                last[run] = last.get(run, -1) + 1
                bodies.append(event_of(run, last[run]))
                continue
            did = f"{number}-{place}" if what == "start" else f"{data.draw(st.integers(0, number))}-{place}"
            state = data.draw(st.sampled_from([*STATES])) if what == "end" and did not in ended else None
            if state is not None:
                expected[state] += 1
                ended.add(did)
            bodies.append(file_of(did, state))
        keep_all(journal, bodies)
        clock.move(data.draw(st.sampled_from([0, 30, 61]), label="pause"))
        worker = Worker(journal, marquez.url, detail=detail, backlog=5)
        for _ in range(data.draw(st.integers(0, 8), label="steps")):
            worker.delivery.step()  # then it is gone without a word, as a killed one
        worker.delivery.close()
    marquez.fault_of = None
    journal.mark(b"flush")
    worker = Worker(journal, marquez.url, detail=detail, backlog=5)
    worker.run()
    latest = {event["run"]["runId"]: event for event in marquez.stored}
    counted: Counter[str] = Counter()
    for event in latest.values():
        facets = event["run"]["facets"]
        counted.update(facets.get(SUMMARY_FACET, {}).get("byFinalState", {}))
        if facets.get(DELTA_FILE_FACET, {}).get("finalState"):
            counted[facets[DELTA_FILE_FACET]["finalState"]] += 1
    assert counted == expected
    for run, final in last.items():
        arrived = [event["number"] for event in others_of(marquez) if event["run"]["runId"] == run]
        assert arrived == sorted(arrived)
        assert set(arrived) == set(range(final + 1))
    assert all(marquez.runs[did] != "RUNNING" for did in ended & marquez.runs.keys())
    assert worker.delivery.pending() == 0
    assert journal.cursor("marquez") == journal.last_seq()
    journal.close()
    marquez.refuse()
