"""The link in a summary: all files of exactly this summary, from wherever their entries are."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from events import RUN_EVENT, event

from waybill.facets import SUMMARY_FACET
from waybill.marquez import Backend, Delivery
from waybill.marquez.links import CollectorLinks, note_collector
from waybill.marquez.summaries import SummaryRules
from waybill.transport import Journal, Kind, Settings, flush

if TYPE_CHECKING:
    import pytest
    from conftest import Open, Start
    from contract_server import ContractServer
    from inside import Inside

    from waybill.transport.config import Detail

AT = "2026-01-01T00:00:01.000Z"


def file_event(did: str, *, ends: bool = True, system: str = "east", source: str = "orders") -> bytes:
    facet: dict[str, Any] = {"did": did, "dataSource": source, "systemName": system, "filename": did}
    ended = {"finalState": "COMPLETE", "dataSink": "lake", "completed": AT, "created": AT}
    facets = {"waybill_deltaFile": facet | (ended if ends else {})}
    kind = "COMPLETE" if ends else "START"
    return event(did, kind, AT, job=f"{system}/{source}", facets=facets, schemaURL=RUN_EVENT)


def keep(journal: Journal, *bodies: bytes) -> None:
    journal.append_many([(Kind.OPENLINEAGE, body, "") for body in bodies])


def deliver(journal: Journal, marquez: ContractServer, detail: Detail, name: str = "marquez") -> None:
    """Deliver everything at once, whatever would have waited for its minute."""
    journal.mark(b"flush")
    delivery = Delivery(journal, Backend(marquez.url), name=name, summaries=SummaryRules(detail=detail))
    while delivery.pending():
        assert delivery.step().problem is None
    delivery.close()


def facets_of(marquez: ContractServer, source: str = "orders") -> list[dict[str, Any]]:
    """The facets of the summaries of a data source, in the order in which they arrived."""
    facets = [event["run"]["facets"].get(SUMMARY_FACET) for event in marquez.stored]
    links = {one.get("provenanceQuery"): one for one in facets if one and one["dataSource"] == source}
    links.pop(None, None)
    return list(links.values())


def dids_of(collector: Inside, link: str) -> list[str]:
    """The files behind a link, which begins with the collector's own address."""
    assert link.startswith(f"{collector.url}/s/")
    answer = collector.get(link.removeprefix(collector.url))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line)["did"] for line in answer.body.splitlines()]


def test_a_link_finds_all_files_of_its_summary_and_only_these(
    inside: Open, journal: Journal, marquez: ContractServer
) -> None:
    collector = inside()
    known = [f"known-{number}" for number in range(3)]
    keep(journal, *(file_event(did, ends=False) for did in known))
    deliver(journal, marquez, "every")
    first = [f"first-{number}" for number in range(450)]
    for number, did in enumerate(first):
        keep(journal, file_event(did, ends=False), file_event(did))
        keep(journal, file_event(f"west-{number}", system="west"), file_event(f"other-{number}", source="x"))
    keep(journal, *map(file_event, known))
    deliver(journal, marquez, "summary")
    second = [f"second-{number}" for number in range(5)]
    keep(journal, *map(file_event, second))
    deliver(journal, marquez, "summary")
    east = [facet for facet in facets_of(marquez) if facet["systemName"] == "east"]
    assert [facet["records"] for facet in east] == [450, 5], "files that Marquez knows get their own end"
    assert dids_of(collector, east[0]["provenanceQuery"]) == first
    assert dids_of(collector, east[1]["provenanceQuery"]) == second
    (west,) = [facet for facet in facets_of(marquez) if facet["systemName"] == "west"]
    assert len(dids_of(collector, west["provenanceQuery"])) == 450
    (other,) = facets_of(marquez, "x")
    assert len(dids_of(collector, other["provenanceQuery"])) == 450
    assert len(east[0]["provenanceQuery"].removeprefix(collector.url)) <= 8


def test_a_browser_is_shown_the_records_and_a_link_that_never_was_is_a_404(
    inside: Open, journal: Journal, marquez: ContractServer
) -> None:
    collector = inside()
    keep(journal, file_event("a"), file_event("b"))
    deliver(journal, marquez, "summary")
    answer = collector.get("/s/1", headers={"Accept": "text/html,application/xhtml+xml"})
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert [json.loads(line)["did"] for line in answer.body.splitlines()] == ["a", "b"]
    for path in ("/s/", "/s/zz", "/s/2", "/s/A", "/s/1_0", "/s/1?backend=other", "/s/1/1"):
        answer = collector.get(path)
        assert (answer.status, answer.headers["content-type"]) == (404, "application/problem+json"), path
        assert "no such summary" in answer.json["detail"], path
    assert collector.get("/s/1?limit=1").status == 400
    assert collector.ask("POST", "/s/1", b"{}", {"Content-Type": "application/json"}).status == 405


def test_each_backend_has_summaries_of_its_own(
    inside: Open, journal: Journal, marquez: ContractServer
) -> None:
    collector = inside()
    keep(journal, file_event("a", ends=False))
    deliver(journal, marquez, "every", name="second")
    keep(journal, file_event("b"), file_event("a"))
    deliver(journal, marquez, "summary", name="second")
    (of_second,) = facets_of(marquez)
    assert of_second["provenanceQuery"] == f"{collector.url}/s/3?backend=second"
    assert dids_of(collector, of_second["provenanceQuery"]) == ["b"]
    deliver(journal, marquez, "summary")
    (_, of_first) = facets_of(marquez)
    assert of_first["provenanceQuery"] == f"{collector.url}/s/3"
    assert dids_of(collector, of_first["provenanceQuery"]) == ["b", "a"]


def test_links_follow_the_collector_to_another_address(start: Start, home: Path, journal: Journal) -> None:
    first = start("--runner", "none", home=home)
    assert CollectorLinks(journal).base == first.url
    assert first.stop()[0] == 0
    assert CollectorLinks(journal).base == first.url, "a link in Marquez is good again when it is back"
    second = start("--runner", "none", "--workers", "2", home=home)
    assert CollectorLinks(journal).base == second.url != first.url


def test_a_link_to_files_that_cannot_be_read_is_no_shorter_list(
    inside: Open, journal: Journal, marquez: ContractServer, caplog: pytest.LogCaptureFixture
) -> None:
    note_collector(journal, "http://127.0.0.1:1")
    dids = [f"file-{number}" for number in range(5_500)]
    keep(journal, *map(file_event, dids))
    deliver(journal, marquez, "summary")
    collector = inside()
    for seq, status in ((5_200, 200), (3, 503)):
        with sqlite3.connect(journal.path) as damaging:
            damaging.execute("UPDATE entries SET body = x'7b' WHERE seq = ?", (seq,))
        damaging.close()
        answer = collector.get("/s/1")
        assert answer.status == status
        problem = json.loads(answer.body.splitlines()[-1])
        assert (problem["status"], "could not be read" in problem["detail"]) == (503, True)
        assert len(answer.body.splitlines()) == (1 if status == 503 else 5_001)
    counted = ("requests", (("path", "/s/{number}"), ("method", "GET"), ("status", "503")))
    assert collector.metrics.counts[counted] == caplog.text.count("could not serve a request") == 2


def test_what_the_journal_has_let_go_comes_from_the_archive_and_the_answer_says_what_it_cannot_know(
    inside: Open, home: Path, root: Path, journal: Journal, marquez: ContractServer
) -> None:
    note_collector(journal, "http://127.0.0.1:1")
    keep(journal, file_event("known", ends=False))
    deliver(journal, marquez, "every")
    files = [f"file-{number}" for number in range(150)]
    keep(journal, *map(file_event, [files[0], "known", *files[1:]]))
    keep(journal, *(file_event(f"west-{number}", system="west") for number in range(9)))
    deliver(journal, marquez, "summary")
    keep(journal, file_event("later"))
    settings = Settings.load({"home": home, "root": root, "runner": "none"}, env={})
    assert flush(settings, timeout_s=60).problems == {}
    (facet,) = [one for one in facets_of(marquez) if one["systemName"] == "east"]
    path = facet["provenanceQuery"].removeprefix("http://127.0.0.1:1")
    collector = inside(root=root)
    assert dids_of(collector, f"{collector.url}{path}") == files
    assert journal.prune(journal.last_seq(), 2**62) > 0
    answer = collector.get(path)
    about = [json.loads(line)["did"] for line in answer.body.splitlines()]
    assert about == [files[0], "known", *files[1:], "later"]
    assert "no longer knows which files" in answer.headers["warning"]
    shown = collector.get(path, headers={"Accept": "text/html"}).body.splitlines()
    assert b"no longer knows" in shown[0]
    assert collector.get("/s/zzzz").status == 404
