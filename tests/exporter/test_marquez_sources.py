"""Marquez as a source of a rebuild: over HTTP, and its database on a real PostgreSQL."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from contract_server import ContractServer, reserialised
from databases import marquez_database
from events import RUN_EVENT, members
from layouts import START_MS, Layout

from waybill.exporter import Wanted, open_source, rebuild
from waybill.exporter.sources import LinesSource, MarquezDatabaseSource, Source, SourceUnreachableError
from waybill.exporter.sources.marquez import MarquezSource
from waybill.facets import AnnotationRule
from waybill.marquez import EventReader
from waybill.transport import Settings, Tracker, flush

if TYPE_CHECKING:
    from waybill.facets import ProvenanceRecord

REAL = Path(__file__).parent.parent / "facets/expected"
WANTED = Wanted(system_name="host", rule=AnnotationRule(frozenset({"errorCause"})))


def events() -> list[dict[str, Any]]:
    """A real job's events, and many with few instants, some with more digits than a database keeps."""
    found = [
        json.loads(line)
        for name in ("4.3.0-tables", "4.0.5-fail2")
        for line in (REAL / f"{name}.jsonl").read_bytes().splitlines()
    ]
    for at in range(150):
        moment = datetime.fromtimestamp(START_MS / 1_000, UTC) + timedelta(milliseconds=at // 60)
        facet = {"_producer": "p", "_schemaURL": "s", "did": f"d{at}", "annotations": {"errorCause": "ü"}}
        found.append(
            members(
                f"r{at}",
                at=moment.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("499+00:00" if at % 3 else "999Z"),
                job="edge/j",
                facets={"waybill_deltaFile": facet} if at % 2 else {},
                outputs=["file/out"],
                schemaURL=RUN_EVENT,
            )
        )
    random.Random(3).shuffle(found)  # noqa: S311 - an order of arrival
    return found


EVENTS = events()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[ProvenanceRecord]:
    folder = tmp_path_factory.mktemp("lines")
    (folder / "log").write_text("\n".join(map(json.dumps, EVENTS)))
    return rebuilt(LinesSource((folder / "log",)), folder / "root")


@pytest.fixture
def server() -> Iterator[ContractServer]:
    started = ContractServer().start()
    yield started
    started.refuse()


def fill(server: ContractServer, found: list[dict[str, Any]]) -> None:
    server.events.extend(reserialised(json.loads(json.dumps(event))) for event in found)


def rebuilt(source: Source, root: Path) -> list[ProvenanceRecord]:
    report = rebuild(source, root, WANTED)
    assert report.is_whole
    return Layout(root).rows()


@pytest.mark.parametrize(("page", "window"), [(1, 10**6), (7, 40), (500, 10**6)])
def test_marquez_gives_the_rows_of_the_events_it_was_sent(
    server: ContractServer,
    tmp_path: Path,
    expected: list[ProvenanceRecord],
    page: int,
    window: int,
) -> None:
    fill(server, EVENTS)
    server.others = 5
    source = MarquezSource(server.url, part_events=window, open_reader=partial(EventReader, page_events=page))
    assert isinstance(source, Source)
    assert len(source.parts()) == (1 if window > 1_000 else 6)
    assert rebuilt(source, tmp_path / "root") == expected


@pytest.mark.parametrize("window", [2, 10**6])
def test_files_that_marquez_has_only_as_counts_give_no_record_and_are_counted_by_flow(
    server: ContractServer, tmp_path: Path, window: int
) -> None:
    given = {"home": str(tmp_path / "home"), "system_name": "shop", "marquez_url": server.url}
    settings = Settings.load({**given, "marquez_detail": "summary", "runner": "none"}, env={})
    with Tracker(settings=settings) as tracker:
        for number in range(20):
            with tracker.file(f"{number}.csv", data_source="orders") as file:
                if number % 4 == 0:
                    file.error("torn")
                else:
                    file.egress("lake")
        with tracker.file("x.csv", data_source="returns"):
            pass
    flush(settings)
    # The same events again, as a database that was merged from two copies would give them.
    server.events.extend(server.events[:])
    source = MarquezSource(server.url, part_events=window)
    report = rebuild(source, tmp_path / "root", WANTED)
    assert (report.records, report.files, report.is_whole) == (0, (), False)
    counted = {(one.system_name, one.data_source): (one.records, one.summaries) for one in report.coalesced}
    assert counted == {("shop", "orders"): (20, 1), ("shop", "returns"): (1, 1)}
    assert all("rebuild --from events" in one.sentence for one in report.coalesced)
    said = [one.sentence.partition(" are missing: ")[2] or one.sentence for one in report.coalesced]
    assert said[0].startswith("1 summary only counts them; ")
    assert "1 record of shop/returns" in said[1]
    assert " is missing: 1 summary only counts it; " in said[1]
    for later in (
        rebuild(source, tmp_path / "s", msgspec.structs.replace(WANTED, systems=frozenset({"other"}))),
        rebuild(source, tmp_path / "t", msgspec.structs.replace(WANTED, until_ms=START_MS)),
    ):
        assert later.is_whole


@pytest.mark.parametrize(("page", "place"), [(3, "first"), (500, "first"), (3, "middle"), (500, "last")])
def test_an_event_that_marquez_cannot_read_is_named_and_everything_else_is_rebuilt(
    server: ContractServer, tmp_path: Path, expected: list[ProvenanceRecord], page: int, place: str
) -> None:
    fill(server, EVENTS)
    instants = sorted(event["eventTime"] for event in server.events)
    moment = {
        "first": "1999-01-01T00:00:00Z",
        "middle": instants[9][:22] + "1234Z",
        "last": "2049-01-01T00:00:00Z",
    }
    fill(server, [{**EVENTS[0], "eventTime": moment[place], "run": {"runId": "odd"}}])
    server.unreadable.add("odd")
    open_reader = partial(EventReader, page_events=page, retry_waits_s=(0.0,))
    report = rebuild(MarquezSource(server.url, open_reader=open_reader), tmp_path / "root", WANTED)
    assert (report.unreadable, report.is_whole, report.damaged) == (1, False, ())
    assert f"cannot read what it has at {moment[place][:10]}" in str(report.first_unreadable)
    assert Layout(tmp_path / "root").rows() == expected


def test_what_arrives_while_marquez_is_read_hides_nothing_that_was_there(
    server: ContractServer,
) -> None:
    fill(server, EVENTS)
    reader = EventReader(server.url, page_events=10)
    extent = reader.extent_us()
    assert extent is not None
    read: list[bytes] = []
    unreadable: list[int] = []
    for batch in reader.read(extent[0], extent[1] + 2, unreadable.append):
        read += batch
        early = json.loads(batch[0])
        # Before the events read so far, and at the exact instant that is being read.
        late = {**early, "run": {"runId": f"late{len(read)}"}}
        if len(server.events) < 2 * len(EVENTS):
            fill(server, [{**late, "eventTime": "2020-01-01T00:00:00Z"}, late])
    reader.close()
    found = {json.dumps(json.loads(body), sort_keys=True) for body in read}
    assert {json.dumps(event, sort_keys=True) for event in server.events[: len(EVENTS)]} <= found


def test_a_marquez_without_events_gives_none(server: ContractServer, tmp_path: Path) -> None:
    assert MarquezSource(server.url).parts() == []
    assert rebuilt(MarquezSource(server.url), tmp_path / "root") == []


def test_a_marquez_that_does_not_answer_stops_the_rebuild_which_goes_on_later(
    server: ContractServer,
    tmp_path: Path,
    expected: list[ProvenanceRecord],
) -> None:
    fill(server, EVENTS)

    def refuse(what: str, done: int, _total: int) -> None:
        if (what, done) == ("reading", 3):
            server.refuse()

    source = MarquezSource(
        server.url, part_events=40, open_reader=partial(EventReader, retry_waits_s=(0.01,))
    )
    with pytest.raises(SourceUnreachableError, match="does not answer"):
        rebuild(source, tmp_path / "root", WANTED, on_progress=refuse)
    server.start()
    report = rebuild(source, tmp_path / "root", WANTED)
    assert report.resumed == 3
    assert Layout(tmp_path / "root").rows() == expected


def test_the_api_key_is_sent_and_never_shown(server: ContractServer, settings: Settings) -> None:
    server.api_key = "secret"
    with pytest.raises(SourceUnreachableError, match="401"):
        MarquezSource(server.url).parts()
    given = Settings.load(
        {"marquez_api_key": "secret", "marquez_url": server.url, "home": settings.home}, env={}
    )
    source = open_source("marquez", [], given)
    assert source.parts() == []
    assert "secret" not in source.describe()


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """Marquez's, filled."""
    with marquez_database(EVENTS) as url:
        yield url


def test_the_database_of_marquez_gives_the_rows_of_the_events_it_holds(
    database: str, tmp_path: Path, expected: list[ProvenanceRecord]
) -> None:
    source = MarquezDatabaseSource(database, part_events=40, batch_rows=7)
    assert isinstance(source, Source)
    assert len(source.parts()) == 5
    assert rebuilt(source, tmp_path / "root") == expected


def test_a_database_that_is_not_there_says_so_without_the_password(tmp_path: Path) -> None:
    source = MarquezDatabaseSource(f"postgresql://me:secret@/marquez?host={tmp_path}")
    with pytest.raises(SourceUnreachableError, match="cannot be read") as caught:
        source.parts()
    assert "secret" not in str(caught.value)
    assert "secret" not in source.describe()
