"""Several backends at once, each with a cursor of its own; files and the console among them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
from delivering import event
from manual_clock import ManualClock

from waybill.marquez import Delivery, dead_letters, open_deliveries
from waybill.marquez.links import note_collector
from waybill.transport import Journal, Kind, Settings

if TYPE_CHECKING:
    from delivering import Site

Open = Callable[..., list[Delivery]]


@pytest.fixture
def open_all(journal: Journal, home: Path, tmp_path: Path) -> Iterator[Open]:
    """The deliveries that these settings ask for."""
    opened: list[Delivery] = []

    def open_all(**given: Any) -> list[Delivery]:  # noqa: ANN401 - settings of any kind
        settings = Settings.load({"home": home, **given}, env={}, cwd=tmp_path)
        opened.extend(open_deliveries(journal, settings))
        return opened

    yield open_all
    for delivery in opened:
        delivery.close()


def work(delivery: Delivery, journal: Journal) -> str | None:
    """Work until nothing is pending or there is a problem; let the time pass for which a step rests."""
    assert isinstance(journal.clock, ManualClock)
    while delivery.pending():
        step = delivery.step()
        if step.problem is not None:
            return step.problem
        journal.clock.move(step.retry_s or 0)
    return None


def catch_up(delivery: Delivery, journal: Journal) -> None:
    """Work until nothing is pending, whatever the problems are meanwhile."""
    assert isinstance(journal.clock, ManualClock)
    while delivery.pending():
        journal.clock.move(delivery.step().retry_s or 0)


@pytest.mark.parametrize(
    ("backend", "given", "path"),
    [
        ("marquez", "", "/api/v1/lineage"),
        ("marquez", "/below/api/v1/lineage", "/below/api/v1/lineage"),
        ("datahub", "", "/openapi/openlineage/api/v1/lineage"),
        ("datahub", "/openapi/openlineage", "/openapi/openlineage/api/v1/lineage"),
        ("datahub", "/openapi/openlineage/api/v1/lineage/", "/openapi/openlineage/api/v1/lineage"),
        ("openmetadata", "/", "/api/v1/openlineage/lineage"),
        ("openmetadata", "/api", "/api/v1/openlineage/lineage"),
        ("custom", "", "/api/v1/lineage"),
        ("custom", "/any/where", "/any/where"),
    ],
)
def test_each_backend_gets_its_events_where_it_wants_them(
    site: Site, open_all: Open, backend: str, given: str, path: str
) -> None:
    site.keep("run")
    one = {"backend": backend, "endpoint": site.marquez.url + given, "api_key": "key"}
    (delivery,) = open_all(backends=[one])
    work(delivery, site.journal)
    (received,) = site.marquez.received
    assert (received.path, received.headers["authorization"]) == (path, "Bearer key")


def test_a_backend_that_is_down_holds_up_no_other_and_catches_up_later(
    site: Site, open_all: Open, tmp_path: Path
) -> None:
    lines = tmp_path / "events.jsonl"
    for number in range(5):
        site.keep("run", number)
    site.marquez.refuse()
    to_marquez, to_file = open_all(
        marquez_url=site.marquez.url, backends=[{"backend": "file", "endpoint": str(lines)}]
    )
    assert (to_marquez.name, to_file.name) == ("marquez", "file")
    work(to_marquez, site.journal)
    work(to_file, site.journal)
    assert (site.journal.cursor("marquez"), site.journal.cursor("file")) == (0, 5)
    assert [json.loads(line)["number"] for line in lines.read_bytes().splitlines()] == [0, 1, 2, 3, 4]
    site.marquez.start()
    catch_up(to_marquez, site.journal)
    assert len(site.marquez.stored) == 5


def test_what_one_backend_refuses_is_its_own_dead_letter(site: Site, open_all: Open) -> None:
    site.keep("run", producer=...)
    second = {"backend": "custom", "name": "second", "endpoint": f"{site.marquez.url}/api/v1/lineage"}
    for delivery in open_all(backends=[second]):
        work(delivery, site.journal)
    assert len(dead_letters(site.journal, "second")) == 1
    assert dead_letters(site.journal) == []


def test_a_file_that_cannot_be_written_is_an_outage_that_ends(
    site: Site, open_all: Open, tmp_path: Path
) -> None:
    lines = tmp_path / "missing" / "events.jsonl"
    site.keep("run")
    (delivery,) = open_all(backends=[{"backend": "file", "endpoint": str(lines)}])
    problem = work(delivery, site.journal)
    assert problem is not None
    assert problem.startswith(f"{lines} does not answer: No such file or directory")
    lines.parent.mkdir()
    catch_up(delivery, site.journal)
    assert len(lines.read_bytes().splitlines()) == 1


def test_the_console_gets_each_event_as_a_line(
    site: Site, open_all: Open, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    body = json.dumps(json.loads(event("run")), indent=2).encode().replace(b"\n", b"\r\n")
    site.journal.append(Kind.OPENLINEAGE, body)
    (delivery,) = open_all(backends=[{"backend": "console"}])
    work(delivery, site.journal)
    (line,) = capfdbinary.readouterr().out.splitlines()
    assert json.loads(line) == json.loads(body)


@pytest.mark.parametrize(
    ("given", "noted", "link"),
    [
        ({}, "https://collector:8290", "https://collector:8290"),
        ({"listen": "elsewhere:1"}, "http://127.0.0.1:8290", "http://127.0.0.1:8290"),
        ({"public_url": "https://lineage.example.com/waybill/"}, "http://127.0.0.1:8290", None),
        ({}, None, ""),
    ],
)
def test_a_summary_points_to_where_users_reach_the_collector_and_has_the_sizes_that_were_told(
    site: Site, open_all: Open, given: dict[str, str], noted: str | None, link: str | None
) -> None:
    if noted is not None:
        note_collector(site.journal, noted)
    with site.tracker("east") as tracker:
        for size_bytes in (1_000, None, 24):
            tracker.file("a.csv", data_source="in").egress("lake", size_bytes=size_bytes)
    site.journal.mark(b"flush")
    (delivery,) = open_all(marquez_url=site.marquez.url, marquez_detail="summary", **given)
    work(delivery, site.journal)
    facets = [e["run"]["facets"]["waybill_summary"] for e in site.marquez.stored]
    (facet,) = {json.dumps(one): one for one in facets if "transform" not in one}.values()
    base = "https://lineage.example.com/waybill" if link is None else link
    assert facet.get("provenanceQuery") == (f"{base}/s/1" if base else None)
    locations = {
        one["job"].get("facets", {}).get("sourceCodeLocation", {}).get("url") for one in site.marquez.stored
    }
    query = urlencode({"system_name": facet["systemName"], "data_source": "in"})
    assert locations == {f"{base}/api/v1/records?{query}" if base else None}
    assert (facet["records"], facet["bytes"]) == (3, 1_024)
